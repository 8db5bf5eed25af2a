"""Joins between ranks and what their hosts' kernels and schedulers say, within the time that matters.

A neighbour's OOM is a neighbour's: a killed process counts only if its pid is a rank's, or its child's, or its cgroup is
the job's. A Xid of last week explains nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.findings.gpu_load import rank_on
from whichrank.job.model import Job, moment
from whichrank.job.names import canon

CLOCKS_DIFFER = 20e9  # ns
BEFORE = 300e9  # ns before the wait began in which a host's trouble still matters
HARD_XIDS = {46, 48, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 149, 150, 158}
CONTAINED_XIDS = {63, 92, 94}


DATED = 2 * 86_400e9  # ns since 1970: what is less is a time of day, of a line before it that had no date
Span = tuple[float, float]  # ns since 1970, from and to


@dataclass(frozen=True, slots=True)
class Joined:
    """A fact of a host, and how firmly it belongs to a rank: pid, child, cgroup, gpu, task, pod, host."""

    fact: Fact
    rank: int | None
    host: str | None
    by: Literal["pid", "child", "cgroup", "gpu", "task", "pod", "host", "none"]


def window(job: Job, arrived: Arrivals) -> Span:
    """From shortly before the wait began (or before the last ordinary line) to shortly after the first timeout, in ns."""
    end = arrived.first.at_ns if arrived.first and arrived.first.at_ns else None
    begin = arrived.began_ns
    if begin is None:
        # A rank monitor says how long it had waited when it ended its rank.
        missed = [(fact.at_ns, fact["seconds"]) for fact in job.of("heartbeat_missed") if fact.at_ns]
        begin = min((at - int(seconds * 1e9) for at, seconds in missed), default=None)
        end = end or max((at for at, _ in missed), default=None)
    if begin is None:
        spoken = [line.at_ns for line in job.said if line.at_ns and line.spot.source.kind in ("training", "unknown")]
        fatal = [
            fact.at_ns
            for fact in job.of("exit", "exception", "cuda_oom", "peer_closed", "gloo_error")
            if fact.at_ns and fact.clock in ("wall", "near")
        ]
        marks = [at for at in (max(spoken, default=None), min(fatal, default=None)) if at is not None]
        begin = min(marks) if marks else None
        end = end or (max(marks) if marks else None)
    return (begin - BEFORE if begin is not None else float("-inf"), (end + 900e9) if end is not None else float("inf"))


def timely(fact: Fact, span: Span) -> bool:
    """Within the window; a fact without a wall clock, or without a day, is given the benefit of the doubt."""
    return fact.at_ns is None or fact.clock == "boot" or fact.at_ns < DATED or span[0] <= fact.at_ns <= span[1]


def addresses(job: Job) -> dict[str, str]:
    """Address -> host, by what hosts said of their own."""
    return {
        str(fact["address"]): fact.who.host
        for fact in job.of("bootstrap_using", "net_using", "ip_address")
        if fact["address"] and fact.who.host
    }


def looks_like_kernel(fact: Fact) -> bool:
    """A kernel line in a job's own output (console, journal): it must be stamped as the kernel stamps."""
    return (
        bool(re.match(r"(?:<\d+>)?\[ *\d+\.\d{6}\]|\[\w{3} \w{3} +\d+ |.{0,60}\bkernel: ", fact.spot.excerpt))
        and not fact.spot.source.ends_midline
        and fact.spot.source.lines < 400
    )


def cards(job: Job, span: Span) -> tuple[Fact, ...]:
    """What network cards say of themselves in the window; the gravest first.

    A card that was hot or short of power before too, while the job ran, is no news.
    """
    before = {
        (fact.who.host, fact["text"])
        for fact in job.of("nic_error")
        if fact.at_ns is not None and fact.clock != "boot" and DATED <= fact.at_ns < span[0]
    }
    timely_ones = [
        fact
        for fact in job.of("nic_error")
        if timely(fact, span)
        and (fact.spot.source.kind != "training" or looks_like_kernel(fact))
        and (grave(fact) or (fact.who.host, fact["text"]) not in before)
    ]
    return tuple(sorted(timely_ones, key=lambda fact: (not grave(fact), moment(fact))))


_GRAVE = re.compile(r"fatal|compromised|unrecoverable|bad device|timed out|TX timeout|leak|Health issue", re.I)


def grave(fact: Fact) -> bool:
    """Does this network card no longer work, or is it only hot or short of power?"""
    return bool(_GRAVE.search(str(fact["text"])))


PRESSED = 40.0  # percent of a minute that nothing ran for want of a resource
THRASHES = 50_000  # kB swapped a second, in and out together, over several intervals


def pressed(fact: Fact) -> str:
    """What a `pressure` fact says if it is severe, else nothing."""
    if isinstance(fact["ms"], int) and fact["ms"] >= 10_000:
        return f"{fact['comm']} waited {fact['ms'] / 1000:.0f} s for a page"
    if fact["resource"] == "cpu" and fact["of"] == "some" and isinstance(fact["avg60"], float) and fact["avg60"] >= 90:
        return f"for {fact['avg60']:.0f} % of a minute"
    if fact["of"] == "full" and isinstance(fact["avg60"], float) and fact["avg60"] >= PRESSED:
        return f"nothing ran for {fact['avg60']:.0f} % of a minute"
    if isinstance(fact["swapped_kb_s"], float) and fact["swapped_kb_s"] >= THRASHES:
        return f"it swaps {fact['swapped_kb_s'] / 1024:.0f} MiB a second over {fact['intervals']} intervals"
    if isinstance(fact["waited_percent"], float) and fact["waited_percent"] >= PRESSED and fact["blocked"] >= 2:
        return (
            f"the processors had nothing else to do for {fact['waited_percent']:.0f} % of {fact['intervals']} intervals"
        )
    if isinstance(fact["available_bytes"], (int, float)) and fact["available_bytes"] < 2**30:
        return f"{fact['available_bytes'] / 2**20:.0f} MiB of it available"
    if isinstance(fact["available_percent"], float) and fact["available_percent"] < 2:
        return f"{fact['available_percent']:.1f} % of it available"
    return ""


def storage(job: Job, span: Span) -> tuple[Joined, ...]:
    """Stalled mounts, hung tasks, I/O errors in the window."""
    found = []
    for fact in job.of("storage_stall", "hung_task", "io_error"):
        if fact.spot.source.kind == "training" and fact.kind != "hung_task" and not looks_like_kernel(fact):
            continue
        if fact.kind == "storage_stall" and fact["state"] in ("ok", "restored"):
            continue
        if not timely(fact, span):
            continue
        rank = job.rank_by_pid(fact.who.pid, fact.who.host) if fact.who.pid else None
        found.append(Joined(fact, rank, fact.who.host, "pid" if rank is not None else "host"))
    return tuple(found)


def gpu_faults(job: Job, span: Span) -> tuple[Joined, ...]:
    """Xids that name hardware, lost GPUs, fatal PCIe errors in the window, joined by bus id."""
    found = []
    for fact in job.of("xid", "gpu_lost", "pcie_error", "sxid", "gpu_error"):
        if fact.kind == "gpu_error" and fact["what"] == "page_fault":
            continue  # like Xid 31: the code's own address
        if fact.kind == "xid" and fact["code"] not in HARD_XIDS and fact["code"] not in CONTAINED_XIDS:
            continue
        if fact.kind == "pcie_error" and not re.search(r"fatal|uncorrect", str(fact["severity"] or ""), re.I):
            continue
        if fact.kind == "sxid" and not fact["fatal"]:
            continue
        if (
            fact.spot.source.kind == "training"
            and fact.kind in ("xid", "pcie_error", "gpu_error")
            and not looks_like_kernel(fact)
        ):
            continue
        if not timely(fact, span):
            continue
        host = fact.who.host
        if fact["all"] and job.ranks and host is not None and not job.ranks_on(host):
            continue  # a login node has none
        rank = by_bus(job, host, str(fact.who.gpu or fact["gpu"] or fact["device"] or ""))
        if rank is None and isinstance(fact.who.pid, int):
            rank = job.rank_by_pid(fact.who.pid, host)
        if rank is None and host is not None and fact["index"] is not None:
            rank = rank_on(job, fact)
        found.append(Joined(fact, rank, host, "gpu" if rank is not None else "host"))
    return tuple(sorted(found, key=lambda joined: moment(joined.fact)))


def _bus(text: str) -> str:
    """0000:ba:00.0, 00000000:BA:00.0, ba:00, ba000 -> ba:00"""
    text = text.lower().strip()
    if match := re.search(r"([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9])?$", text):
        return f"{match[1]}:{match[2]}"
    if re.fullmatch(r"[0-9a-f]{5,6}", text):  # NCCL writes bus and device without a colon: ba000
        text = text[:-1]
        return f"{text[:-2].rjust(2, '0')[-2:]}:{text[-2:]}"
    return text


def by_bus(job: Job, host: str | None, bus: str) -> int | None:
    """The rank that runs on the GPU with this PCI bus id."""
    wanted = _bus(bus)
    if not re.fullmatch(r"[0-9a-f]{2}:[0-9a-f]{2}", wanted):
        return None
    fits = [
        rank
        for rank, info in job.ranks.items()
        if info.gpu and _bus(info.gpu) == wanted and (host is None or info.host == host)
    ]
    if len(fits) == 1:
        return fits[0]
    for fact in job.of("bus_ids"):
        for index, other in fact["ids"] or fact["bus_ids"] or ():
            if _bus(str(other)) == wanted:
                order = next(
                    (
                        visible["devices"]
                        for visible in job.of("visible_devices")
                        if canon(visible.who.host) in (host, None)
                    ),
                    None,
                )
                local = list(order).index(int(index)) if order and int(index) in list(order) else int(index)
                return job.local(host, local) if job.local(host, local) is not None else _by_position(job, host, local)
    return None


def _by_position(job: Job, host: str | None, local: int) -> int | None:
    ranks = job.ranks_on(host)
    return ranks[local] if 0 <= local < len(ranks) else None
