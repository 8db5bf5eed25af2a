"""A node's part in a run, as `whichrank run` on that node saw it, and how the parts of several nodes make one run.

What nodes of one run have in common is an id: torchrun's rendezvous, else the scheduler's job, else the master's address.
The same id may come again, on a restart by hand or in a loop of the batch script. So a part belongs to a run of its id
that began within `TOGETHER` of it, or still goes on, and in which its host has no part yet: a host that starts again is
another run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whichrank.history.incident import Incident, Placement, Run, digest, squeezed

TOGETHER = 900.0  # seconds between the starts of two nodes of a run
UNHEARD = 7200.0  # seconds after its last sign in which a node whose end nobody saw may still run
GRADES = ("undecided", "possible", "likely", "proven")
OUTCOMES = ("healthy", "incident", "failed", "stopped", "open")


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank of this node in one attempt. `gpu`: UUID."""

    rank: int
    attempt: int = 0
    local_rank: int | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """Times in seconds since 1970, UTC.

    name      the run directory's
    shared    of the id that all nodes of the run have; of this part alone where there is none
    ended     the last sign of it, where nobody saw the end: outcome "open"
    outcome   healthy; incident; failed: an exit code that nothing explains; stopped: it was told to end; open
    """

    name: str
    shared: str
    label: str
    host: str
    began: float
    ended: float
    outcome: str = "open"
    exit_code: int | None = None
    world_size: int = 0
    seats: tuple[Seat, ...] = ()
    command: str = ""

    @property
    def key(self) -> str:
        return digest("node", self.name, self.host, f"{self.began:.3f}")


def same_id(told: Mapping[str, Any], ring_job: str | None, *own: Any) -> str:
    """What all nodes of a run know alike, as one key. told: `ids` of run.json; own: what only this part has.

    >>> of = {"rdzv": None, "job": "slurm 88", "step": "0", "endpoint": None}
    >>> same_id(of, "none", "a") == same_id(of, None, "b"), same_id({}, "none", "a") == same_id({}, "none", "b")
    (True, False)
    """
    job, endpoint = told.get("job"), told.get("endpoint")
    number = str(job).rpartition(" ")[2] if job else None
    rdzv = told.get("rdzv") or (ring_job if ring_job not in (None, "", "none", number) else None)
    if rdzv:
        return digest("rdzv", rdzv, job or endpoint, told.get("restart"))
    if job:
        return digest("job", job, told.get("restart"), told.get("step"))
    if endpoint:
        return digest("endpoint", endpoint)
    return digest("own", *own)


def run_for(node: Node, others: Iterable[tuple[str, Node]]) -> str:
    """The id of the run that this part belongs to. others: (run, node) of the same `shared`."""
    runs: dict[str, list[Node]] = {}
    for run, other in others:
        runs.setdefault(run, []).append(other)
    fits = []
    for run, members in runs.items():
        began = min(one.began for one in members)
        ended = max(one.ended + (UNHEARD if one.outcome == "open" else 0.0) for one in members)
        apart = abs(node.began - began)
        if all(one.host != node.host for one in members) and (apart <= TOGETHER or began <= node.began < ended):
            fits.append((apart, run))
    return min(fits)[1] if fits else node.key


def run_of(id_: str, nodes: Sequence[Node]) -> Run:
    """The run that these parts make."""
    placement = _placement(nodes)
    size = max((node.world_size for node in nodes), default=0)
    labels = [node.label for node in sorted(nodes, key=lambda one: one.began) if node.label]
    return Run(id_, labels[0] if labels else "", min(node.began for node in nodes), max(node.ended for node in nodes),
               placement, size)  # fmt: skip


def seats(nodes: Iterable[Node]) -> dict[int, tuple[str, Seat]]:
    """Each rank's host and seat, in its last attempt."""
    found: dict[int, tuple[str, Seat]] = {}
    for node in sorted(nodes, key=lambda one: (one.began, one.host)):
        for seat in node.seats:
            if seat.rank not in found or found[seat.rank][1].attempt <= seat.attempt:
                found[seat.rank] = (node.host, seat)
    return found


def _placement(nodes: Sequence[Node]) -> Placement:
    """A node of which no rank is known took part all the same: it counts behind the ranks, with one."""
    where = seats(nodes)
    known = squeezed([where[rank][0] if rank in where else "" for rank in range(max(where, default=-1) + 1)])
    seated = {host for host, _ in where.values()}
    return (*known, *((host, 1) for host in sorted({node.host for node in nodes} - seated)))


def placed(incident: Incident, run: str, nodes: Sequence[Node]) -> Incident:
    """The incident as one of this run; with its host, local rank and GPU where only the rank was known.

    The first attempt has no number: a node that saw no second one cannot know that it was the first.
    """
    incident = replace(incident, run=run, attempt=incident.attempt or None)
    host, seat = seats(nodes).get(-1 if incident.rank is None else incident.rank, (None, None))
    if seat is None or (incident.host and incident.host != host):
        return incident
    local = seat.local_rank if incident.local_rank is None else incident.local_rank
    return replace(incident, host=host, local_rank=local, gpu=incident.gpu or seat.gpu)


def sureness(incident: Incident) -> tuple[bool, int, bool, float]:
    """Of what two nodes of a run say of one incident the surer counts."""
    grade = GRADES.index(incident.grade) if incident.grade in GRADES else 0
    return incident.cause != "undecided", grade, incident.rank is not None, incident.confidence
