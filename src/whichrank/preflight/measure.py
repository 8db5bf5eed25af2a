"""Bandwidth: what rank 0 has measured over all nodes, between pairs (links.py) and by collectives (collective.py)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whichrank.preflight import collective, links
from whichrank.preflight.answer import Finding

if TYPE_CHECKING:
    from whichrank.preflight.conduct import Conductor

TURNS = 3  # that a slow pair is measured again
LONGEST = 45.0  # seconds for a sweep, where --seconds leaves so much


def bandwidth(job: Conductor) -> tuple[list[Finding], str]:
    if why := job.unfit():
        return [], why
    if len(job.roster.names) < 2:
        return [], "left out: one node"
    speeds: dict[tuple[str, str], float] = {}
    for pairs in links.rounds(job.roster.names):
        for way in (pairs, [(b, a) for a, b in pairs]):
            speeds.update(_streams(job, way, links.SECONDS))
    usual = _confirmed(job, speeds)
    line = {
        node: (job.facts[job.roster.leader(node)][job.answer.backend] or {}).get("speed") for node in job.roster.names
    }
    links.table(job.answer.pairs, speeds)
    low, high = min(speeds.values()), max(speeds.values())
    says = f"{len(speeds)} ways between nodes, {low:.2g} to {high:.2g} Gb/s"
    return links.judge(speeds, job.roster, line, job.asked.least_gbps, usual), says


def _confirmed(job: Conductor, speeds: dict[tuple[str, str], float]) -> float | None:
    """Measures suspects again, one at a time, in turn with the fastest pair: the best counts. What that pair reached then."""
    good: list[float] = []
    for _ in range(TURNS):
        usual = statistics.median(good) if good else None
        suspects = links.suspects(speeds, job.asked.least_gbps, usual)
        if not suspects or job.left < 10:
            break
        fastest = max(speeds, key=lambda pair: speeds[pair])
        good.append(_streams(job, [fastest], links.AGAIN)[fastest])
        for pair in suspects:
            speeds[pair] = max(speeds[pair], _streams(job, [pair], links.AGAIN)[pair])
    return statistics.median(good) if good else None


def _streams(job: Conductor, pairs: Sequence[tuple[str, str]], seconds: float) -> dict[tuple[str, str], float]:
    """Gb/s, 0 where nothing arrived."""
    to = {}
    for source, target in pairs:
        rank = job.roster.leader(target)
        one = job.facts[rank]
        to[str(job.roster.leader(source))] = (one[job.answer.backend]["addresses"][0], one["listening"][0], rank)
    answers = job.ask("stream", [int(rank) for rank in to], {"to": to, "seconds": seconds}, seconds + 7)
    return {pair: answers.get(job.roster.leader(pair[0])) or 0.0 for pair in pairs}


def collectives(job: Conductor) -> tuple[list[Finding], str]:
    without = [rank for rank, told in job.facts.items() if not told["versions"].get("torch")]
    if why := job.unfit():
        return [], why
    if without:
        return [], f"left out: no torch on {job.roster.where(without)}"
    seconds = min(LONGEST, job.left - 2)
    backend = job.answer.backend
    sizes = collective.NCCL if backend == "nccl" else collective.GLOO
    told = _sweep(job, [job.roster.names], sizes, seconds)
    if found := collective.failures(told, job.roster, backend, seconds):
        return found, "did not come through" if found[0].grade == "stop" else "left out: torch was too slow to import"
    job.answer.collective = collective.rows(told, backend, job.roster.names)
    last = job.answer.collective[-1]
    says = f"{backend} all_reduce of {last['bytes'] >> 20} MiB: busbw {last['busbw_gbs']:.3g} GB/s; {job.answer.collective[0]['us']:.0f} us for 1 KiB"
    gpu = next((str(one["gpu"]) for one in told.values() if one.get("gpu")), "")
    known = collective.expected(gpu, len(job.roster.names), job.place.world, last["bytes"])
    if job.asked.busbw:
        bar, source = job.asked.busbw, "--busbw"
    elif known:
        bar, source = collective.SHARE * known[0], f"{collective.SHARE:.0%} of {known[0]:g}, {known[1]}"
    else:
        return [], says
    return [] if last["busbw_gbs"] >= bar else [_halved(job, last, bar, source)], says


class OutOfTime(Exception):
    """Nothing is left of the time that the user gave."""


def _halved(job: Conductor, last: Mapping[str, Any], bar: float, source: str) -> Finding:
    """Groups of one node are not measured: what happens inside one is the GPUs' check. bar: busbw in GB/s."""

    def measure(groups: Sequence[tuple[str, ...]]) -> list[float | None]:
        if job.left < 6:
            raise OutOfTime
        told = _sweep(job, groups, [last["bytes"]], max(5.0, min(25.0, job.left - 2)))
        found: list[float | None] = []
        for group in groups:
            ranks = [rank for node in group for rank in job.roster.ranks_of(node)]
            took = (told.get(ranks[0]) or {"rows": {}})["rows"].get(str(last["bytes"]))
            found.append(collective.busbw(last["bytes"], took, len(ranks)) if took else None)
        return found

    culprits: list[tuple[str, ...]] = []
    finished = True
    try:
        if len(job.roster.names) > 1:
            culprits += dict.fromkeys(collective.halve(job.roster.names, measure, bar))
    except OutOfTime:
        finished = False
    return collective.slow(last, bar, source, culprits, finished, job.roster)


def _sweep(job: Conductor, groups: Sequence[Sequence[str]], sizes: Sequence[int], seconds: float) -> dict[int, Any]:
    ranks = [[rank for node in group for rank in job.roster.ranks_of(node)] for group in groups]
    ports = job.ask("port", [group[0] for group in ranks], None, 5)
    made = [
        {"ranks": group, "host": job.facts[group[0]][job.answer.backend]["addresses"][0], "port": ports[group[0]]}
        for group in ranks
        if group[0] in ports
    ]
    told = {"groups": made, "backend": job.answer.backend, "sizes": list(sizes), "seconds": seconds}
    return job.ask("collective", [rank for one in made for rank in one["ranks"]], told, seconds + 2)
