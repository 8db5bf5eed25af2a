r"""Settings of the kernel that bear on a job's failure: `sysctl -a`.

Formats: procps 3.3 and 4 (`sysctl`, run here with 4.0), in any order. Of a thousand values only those are kept
that a failure in the evidence can turn on; none of them proves anything by itself.

>>> from whichrank.evidence.sample import facts
>>> [(fact.who.host, fact["name"], fact["value"]) for fact in facts(READER, "n3$ sysctl -a\nnet.core.somaxconn = 128\nnet.core.wmem_max = 212992")]
[('n3', 'net.core.somaxconn', 128)]
"""

from __future__ import annotations

from whichrank.evidence.scan import Line, Reader

_NAMES = r"net\.core\.somaxconn|net\.netfilter\.nf_conntrack_max"

READER = Reader(
    "sysctl",
    lines=(
        Line(
            "sysctl",
            ("net.core.somaxconn", "net.netfilter.nf_conntrack_max"),
            rf"(?:^|\s)(?P<name>{_NAMES})\s*=\s*(?P<value>\d{{1,12}})\s*$",
        ),
    ),
    machine=True,
    title="settings of the kernel that a failure can turn on",
    versions="procps 3.3 and 4 (`sysctl -a`)",
    collect=("sysctl -a > $(hostname).sysctl",),
)
