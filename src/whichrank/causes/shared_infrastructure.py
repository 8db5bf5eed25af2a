"""shared_infrastructure: one shared service hit several nodes or runs at once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.hosts import timely
from whichrank.job.model import Job
from whichrank.model import Check

_LOST = re.compile(r"not responding|was lost|evicted|timed out, in", re.I)  # the plainest of several lines on one stall


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    servers: dict[str, dict[str, Fact]] = defaultdict(dict)
    for joined in found.storage:
        if joined.fact.kind == "storage_stall" and joined.host:
            by_host = servers[str(joined.fact["server"])]
            if joined.host not in by_host or (
                _LOST.search(joined.fact.spot.excerpt) and not _LOST.search(by_host[joined.host].spot.excerpt)
            ):
                by_host[joined.host] = joined.fact
    for server, by_host in servers.items():
        if len(by_host) >= 2:
            yield Clue(
                4.5 + min(2, len(by_host) - 2),
                "kernel",
                f"{len(by_host)} hosts lost {server} at the same time",
                tuple(by_host.values())[:3],
                (),
                tuple(sorted(by_host)),
                mechanism="host_stuck",
            )
            break
    switches = [fact for fact in job.of("switch_down") if timely(fact, found.window)]
    if switches:
        hit = tuple(sorted({fact.who.host for fact in job.of("link") if fact["state"] == "down" and fact.who.host}))
        yield Clue(
            6.5 if found.network.transport or len(hit) >= 2 or found.arrived.waits else 3.0,
            "transport",
            f"switch {switches[0]['device']} went down"
            + (f", and with it the links of {len(hit)} hosts" if hit else ""),
            tuple(switches[:1]),
            (),
            hit,
            mechanism="network",
        )
    downs: dict[str, Fact] = {}
    for fact in found.network.links:
        if fact.who.host:
            downs.setdefault(fact.who.host, fact)
    if len(downs) >= 3:
        yield Clue(
            4.0,
            "transport",
            f"links went down on {len(downs)} hosts at the same time",
            tuple(downs.values())[:3],
            (),
            tuple(sorted(downs)),
            mechanism="network",
        )


CAUSE = Cause(
    id="shared_infrastructure",
    title="a shared service failed several nodes at once",
    means="Storage, fabric, power or the scheduler hit several nodes or several jobs in the same minutes; no single rank or node is to blame.",
    looks_like="The same server stops answering on several hosts, links drop on many nodes together, unrelated jobs stall at the same time.",
    settles=(
        Check(
            "who else was hit?",
            "sacct -S START -E END --state=F,NF,TO -o JobID,User,NodeList,State,End   # other jobs in those minutes",
        ),
        Check("the service's own log: ask the storage or fabric team for its events at that time"),
    ),
    fix=(
        "Report it with the times and hosts below; in the job, retries with a bound around the service, and local staging.",
    ),
    stopgap="Resume from the last checkpoint once the service is back; keep all nodes.",
    weigh=weigh,
    prior=-2.5,
    mechanism="host_stuck",
    blames_ranks=False,
    verb="a shared service failed several hosts at once",
    dont="drain the nodes: they are not what failed",
)
