"""Connections of the job that get no answer: from which host, to whom, and whether others reach the same port.

Only the job's own: those to the master's port, and those of a rank's process or of Python to a host of the job. Who
refuses answers at once, so one look suffices for "no answer yet"; SYNs that were sent again, several such connections,
or a port that others reach make it more than a moment's wait.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.findings.hosts import Span, addresses, timely
from whichrank.job.model import Job
from whichrank.job.names import canon

_OURS = re.compile(r"python|torchrun|pt_main|pt_elastic|ray::|deepspeed|accelerate", re.I)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A host whose connections to one port of a peer wait for an answer."""

    facts: tuple[Fact, ...]  # those that wait, the most often repeated first
    host: str | None
    peer: str  # its host where known, else its address
    peer_host: str | None
    port: int
    master: bool  # the port at which the ranks meet
    reached: Fact | None  # another host that is connected to the same port
    listens: Fact | None  # the peer's own word that somebody listens there

    @property
    def lasting(self) -> bool:
        return len(self.facts) > 1 or (self.facts[0]["retries"] or 0) > 1

    @property
    def at_fault(self) -> str | None:
        """Where others come through, it is the path of this host; where nobody does, the peer or its firewall."""
        return self.host if self.reached is not None else self.peer_host

    @property
    def proof(self) -> tuple[Fact, ...]:
        return tuple(fact for fact in (*self.facts[:2], self.reached, self.listens) if fact is not None)

    @property
    def says(self) -> str:
        """ "n3 gets no answer from n1:29500, to which n2 is connected"."""
        other = self.reached.who.host if self.reached is not None else None
        end = (
            f", to which {other or 'another host'} is connected"
            if self.reached is not None
            else ", which listens there"
            if self.listens is not None
            else ""
        )
        return f"{self.host or 'a host'} gets no answer from {self.peer}:{self.port}{end}"


def unanswered(job: Job, span: Span) -> tuple[Unanswered, ...]:
    facts = [fact for fact in job.of("connection") if timely(fact, span)]
    homes, masters = _homes(job), _masters(job)
    waiting: dict[tuple[str | None, str, int], list[Fact]] = defaultdict(list)
    for fact in facts:
        port, peer = fact["peer_port"], str(fact["peer"])
        if fact["state"] != "waits" or not isinstance(port, int):
            continue
        if port in masters or (_is_ours(job, fact) and peer in homes):
            waiting[fact.who.host, peer, port].append(fact)
    found = []
    for (host, peer, port), some in waiting.items():
        theirs = homes.get(peer)
        found.append(
            Unanswered(
                tuple(sorted(some, key=lambda fact: (-(fact["retries"] or 0), fact.order))),
                host,
                theirs or peer,
                theirs,
                port,
                port in masters,
                _reached(facts, host, peer, theirs, port),
                next((fact for fact in facts if _listens(fact, theirs, port)), None),
            )
        )
    return tuple(sorted(found, key=lambda one: (not one.master, not one.lasting, -len(one.facts), one.facts[0].order)))


def _listens(fact: Fact, host: str | None, port: int) -> bool:
    return bool(host) and fact["state"] == "listens" and fact["local_port"] == port and fact.who.host == host


def _reached(facts: Iterable[Fact], host: str | None, peer: str, theirs: str | None, port: int) -> Fact | None:
    """A connection of another host to the same port, as that host sees it."""
    for fact in facts:
        same = fact["peer"] == peer and fact["peer_port"] == port
        if fact["state"] == "stands" and same and host and fact.who.host not in (None, host, theirs):
            return fact
    return None


def _homes(job: Job) -> dict[str, str]:
    """Addresses of the job's hosts: what they said of themselves, and what their own connections start from."""
    names = {str(fact["address"]): canon(str(fact["name"])) for fact in job.of("resolves") if fact["address"]}
    own = {str(fact["local"]): fact.who.host for fact in job.of("connection") if fact["local"] and fact.who.host}
    every = {**{address: name for address, name in names.items() if name in job.hosts}, **own, **addresses(job)}
    return {
        address: host
        for address, host in every.items()
        if host and not address.startswith("127.") and address not in ("*", "0.0.0.0", "::")
    }


def _masters(job: Job) -> set[int]:
    """The ports at which the ranks meet."""
    ports = [fact["value"] for fact in job.of("env_set") if fact["name"] == "MASTER_PORT"]
    ports += [fact["port"] for fact in job.of("connect_timeout")]
    ports += [fact["master_port"] for fact in job.of("rendezvous_complete")]
    return {int(port) for port in ports if str(port or "").isdecimal()}


def _is_ours(job: Job, fact: Fact) -> bool:
    if job.rank_by_pid(fact.who.pid, fact.who.host) is not None:
        return True
    return bool(_OURS.search(str(fact["process"] or "")))
