r"""How far a host's clock is off: `chronyc tracking`, `chronyc sources`, `ntpq -p`.

Formats: chrony 1.29 to 4.6 (client.c: "slow" means that the clock is behind; of the samples of `sources` the figure before
the brackets, which is above zero where the clock is ahead), ntp 4.2 and ntpsec 1 (the line of the chosen peer,
milliseconds, of the other sign). The value is clock minus true time in seconds: below zero the host's stamps are too
early. It holds for when the command ran, and during the incident only as far as nobody has set the clock since.

Left out: `timedatectl timesync-status`, whose offset is what timesyncd met before it set the clock, and `date` on several
hosts, where one that answers late looks like a clock that is behind.

>>> from whichrank.evidence.sample import facts
>>> off, = facts(READER, "gx-7$ chronyc tracking\nReference ID    : C0A8091E (ntp-a)\nSystem time     : 41.763061523 seconds slow of NTP time")
>>> off.who.host, off["seconds"], off["tool"]
('gx-7', -41.763061523, 'chrony')
>>> text = '''     remote           refid      st t when poll reach   delay   offset  jitter
... ==============================================================================
... *10.123.33.1     129.6.15.28      2 u    7   32  377    2.030  5720.000   0.032'''
>>> [(fact["seconds"], fact["tool"]) for fact in facts(READER, text)]
[(-5.72, 'ntp')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Fact

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _tracking(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    seconds = float(match["seconds"])
    yield row.fact("clock_offset", seconds=-seconds if match["way"] == "slow" else seconds, tool="chrony")


class Sources(Tool):
    """`chronyc sources`: the line of the source that was chosen."""

    _CHOSEN = re.compile(
        r"^[\^=#]\*\s+\S+\s+\d+\s+-?\d+\s+[0-7]+\s+\S+\s+(?P<value>[+-]\d{1,9})(?P<unit>ns|us|ms|s)\[\s*[+-]\d+\w+\]\s+\+/-"
    )

    def read(self, row: Row) -> bool:
        if match := self._CHOSEN.match(row.text):
            self.add(row, "clock_offset", seconds=int(match["value"]) * _SECONDS[match["unit"]], tool="chrony")
            return True
        return bool(re.match(r"MS Name/IP address|===|[\^=#][-+?x~]\s", row.text))


class Peers(Tool):
    """`ntpq -p`: the line of the peer that was chosen."""

    _CHOSEN = re.compile(
        r"^[*o]\S+\s+\S+\s+\d{1,2}\s+[ulsbmpABM]\s+\S+\s+\d+\s+[0-7]{1,3}\s+\d+\.\d+\s+(?P<ms>[+-]?\d{1,12}\.\d+)\s+\d+\.\d+\s*$"
    )

    def read(self, row: Row) -> bool:
        if match := self._CHOSEN.match(row.text):
            self.add(row, "clock_offset", seconds=-float(match["ms"]) / 1000, tool="ntp")
            return True
        return bool(re.match(r"\s+remote\s+refid\s+st t when poll|====|[ x.#+-]\S+\s+\S+\s+\d+ [a-z]", row.text))


READER = Reader(
    "clock_tools",
    lines=(
        Line(
            "clock_offset",
            ("seconds slow of NTP time", "seconds fast of NTP time"),
            r"System time\s*: (?P<seconds>\d{1,12}\.\d+) seconds (?P<way>slow|fast) of NTP time\s*$",
            read=_tracking,
        ),
    ),
    blocks=(
        Tools(Sources, "MS Name/IP address", "Poll Reach LastRx Last sample"),
        Tools(Peers, "st t when poll reach"),
    ),
    machine=True,
    title="how far the hosts' clocks are off",
    versions="chrony 1.29 to 4.6, ntp 4.2, ntpsec 1",
    collect=(
        "chronyc tracking > $(hostname).chrony",
        "ntpq -p > $(hostname).ntp",
    ),
)
