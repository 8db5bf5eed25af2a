"""The tables beside the verdict: ranks, timeline, what is missing."""

from __future__ import annotations

import re

from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.findings.network import tells_of_path
from whichrank.job.clocks import DAY, iso, offsets, span
from whichrank.job.model import Job, moment
from whichrank.model import Missing, Moment, RankRow, RankState, Verdict
from whichrank.ranges import several

_TELLING = {
    "connection": "a connection that {state}",
    "gpu_topology": "how the GPUs are joined",
    "oom_kill": "the kernel killed {comm} (pid {pid}) for memory",
    "oom_event": "the scheduler counted an OOM kill",
    "task_oom": "Slurm: task {task} Out Of Memory",
    "pod_oom": "Kubernetes: OOMKilled",
    "xid": "Xid {code} on GPU {gpu}",
    "gpu_lost": "GPU {device} lost",
    "pcie_error": "PCIe error, {severity}",
    "storage_stall": "{fs} server {server} {state}",
    "hung_task": "{comm} blocked for {seconds} s",
    "link": "link {interface} {state}",
    "pod_evicted": "pod evicted",
    "step_cancelled": "step cancelled {reason}",
    "exception": "{type}",
    "cuda_oom": "out of GPU memory",
    "cuda_error": "CUDA error",
    "dl_worker_killed": "a DataLoader worker was killed",
    "exit": "exit {exitcode}",
    "ib_error": "InfiniBand completion error {status}",
    "shm_error": "shared memory error",
    "no_interface": "no network interface found",
    "connect_timeout": "connecting to {address} timed out",
    "store_timeout": "{joined}/{expected} clients joined",
    "restart": "restart",
    "success": "success",
    "io_error": "I/O error on {device}",
    "process": "process {pid} in state {stat}",
    "stack": "stack of {thread}",
    "collector_drop": "the log collector dropped records",
}


def ranks(job: Job, found: Findings, verdict: Verdict) -> tuple[RankRow, ...]:
    guilty = {culprit.rank for culprit in verdict.culprits}
    waits = {wait.rank: wait for wait in found.arrived.waits}
    usual = verdict.seq
    reached = [wait.seq for wait in found.arrived.waits if wait.seq is not None and wait.group == verdict.group]
    rows = []
    for rank in sorted(job.everyone() | set(job.ranks)):
        info = job.ranks.get(rank)
        wait = waits.get(rank)
        state = _state(job, found, verdict, rank, guilty)
        if (
            wait is not None
            and wait.seq is not None
            and usual is not None
            and wait.group == verdict.group
            and (found.told is None or rank in verdict.group_ranks)
            and state == "waiting"
            and len(set(reached)) > 1
        ):
            state = "ahead" if wait.seq > usual else "behind" if wait.seq < usual else state
        last = info.last if info else None
        rows.append(
            RankRow(
                rank,
                state,
                _says(found, rank, state, last),
                info.host if info else None,
                wait.group if wait else None,
                wait.seq if wait else None,
                wait.op if wait else None,
                iso(wait.entered_ns if wait else last.at_ns if last else None),
            )
        )
    return tuple(rows)


def _state(job: Job, found: Findings, verdict: Verdict, rank: int, guilty: set[int | None]) -> RankState:
    if rank in guilty:
        return "dead" if verdict.mechanism == "dead" and rank not in found.arrived.waiting else "culprit"
    if rank in found.arrived.waiting:
        return "waiting"
    if found.ending.well:
        return "finished"
    info = job.ranks.get(rank)
    if info is None or not (info.said or info.facts):
        return "silent"
    if any(
        fact.kind in ("exception", "cuda_oom", "exit") and fact["exitcode"] != 0 and not fact["caught"]
        for fact in info.facts
    ):
        return "dead"
    return "silent" if found.arrived.waits and rank in found.arrived.absent else "unknown"


def _says(found: Findings, rank: int, state: str, last: Said | None) -> str:
    if state in ("culprit", "silent", "dead") and last is not None and not last.text.lstrip().startswith("frame #"):
        return f"last line: {last.text.strip()[:80]}"
    return ""


def timeline(job: Job, found: Findings, verdict: Verdict) -> tuple[Moment, ...]:
    """The first and last progress, what the verdict rests on, and the first of each telling kind."""
    cited = {(proof.source, proof.line) for proof in verdict.because}
    chosen: dict[tuple[str, int | None], tuple[Fact | Said, str]] = {}
    first_of: set[tuple[str, str | None]] = set()
    for fact in job.facts:
        key = (fact.spot.source.path, fact.spot.line)
        group = (fact.kind, fact.who.host)
        if fact.kind in ("timeout", "dump") or (
            fact.kind == "exception" and "torch.distributed.elastic" in str(fact["type"])
        ):
            continue  # the first timeout has a row of its own; the launcher's summary is no event
        if (key in cited and fact.kind != "member") or (
            fact.kind in _TELLING
            and group not in first_of
            and not fact["caught"]
            and not (fact.kind == "exit" and fact["exitcode"] in (-15, -6))
        ):
            first_of.add(group)
            chosen[key] = (fact, _tell(fact))
    if found.arrived.first is not None:
        first = found.arrived.first
        chosen[first.spot.source.path, first.spot.line] = (
            first,
            f"first timeout, in {first['op'] or 'a collective'}{f' #{first.seq}' if first.seq is not None else ''}",
        )
    if found.told is not None and found.told.waits and found.told.waits[0].at_ns:
        early = min(found.told.waits, key=lambda fact: fact.at_ns or 0)
        chosen[early.spot.source.path, early.spot.line] = (early, f"begins to wait in {early['op']}, by its dump")
    if found.ending.last_beat is not None:
        line = found.ending.last_beat.last
        chosen[line.spot.source.path, line.spot.line] = (line, f"last progress: {line.text.strip()[:60]}")
    # What happened days before (a link that came up at boot) would only stretch the offsets.
    begin = found.window[0] - 3600e9
    chosen = {
        key: entry
        for key, entry in chosen.items()
        if key in cited or entry[0].at_ns is None or entry[0].at_ns < DAY or entry[0].at_ns >= begin
    }
    items = sorted(chosen.values(), key=lambda entry: (when(job, entry[0]) or float("inf"), *moment(entry[0])[1:]))
    return tuple(
        Moment(
            iso(when(job, item)),
            says,
            item.spot.source.path,
            item.spot.line,
            item.rank,
            item.who.host,
        )
        for item, says in items[:40]
    )


def _tell(fact: Fact) -> str:
    values = {
        name: fact.values.get(name, "")
        for name in (
            "comm",
            "pid",
            "task",
            "code",
            "gpu",
            "device",
            "severity",
            "fs",
            "server",
            "state",
            "seconds",
            "interface",
            "reason",
            "type",
            "exitcode",
            "status",
            "address",
            "joined",
            "expected",
            "stat",
            "thread",
        )
    }
    values["pid"] = values["pid"] or fact.who.pid or ""
    values["gpu"] = values["gpu"] or fact.who.gpu or ""
    return _TELLING.get(fact.kind, fact.kind.replace("_", " ")).format(**values).strip()


def gaps(job: Job, found: Findings, verdict: Verdict) -> tuple[Missing, ...]:
    rows = [Missing(gap.what, gap.why, gap.would_help, gap.command) for gap in job.gaps]
    for info in job.ranks.values():
        if info.coverage in ("cut", "rate_limited"):
            why = (
                "the collector dropped records of it"
                if info.coverage == "rate_limited"
                else "it ends in the middle of a line"
            )
            for source in sorted(info.sources, key=lambda s: s.path):
                if source.coverage == info.coverage:
                    rows.append(Missing(source.path, why, f"its silence says nothing about rank {info.rank}"))
    if found.told is not None and job.table is not None and job.table.missing:
        rows.append(
            Missing(
                f"Flight Recorder dumps of {several(sorted(job.table.missing)[:64])}",
                "not among the files",
                "whether they wait too, or are what the others wait for",
                "ls ~/.cache/torch/*trace_rank_* /tmp/nccl_trace_rank_*",
            )
        )
    rows += [Missing("what Flight Recorder shows", note) for note in (found.told.notes if found.told else ())]
    unseen = sorted(found.arrived.unseen) if found.told is None else []
    if unseen and found.arrived.waits:
        shown = ", ".join(map(str, unseen[:8])) + ("…" if len(unseen) > 8 else "")
        rows.append(
            Missing(
                f"output of rank{'s' if len(unseen) > 1 else ''} {shown}",
                "not collected",
                "what they did when the others waited",
            )
        )
    rows += _second_snapshots(found)
    rows += _clocks(job)
    kernel_hosts = {fact.who.host for fact in job.facts if fact.spot.source.kind == "kernel"}
    wanted = [host for host in verdict.hosts if host not in kernel_hosts]
    if verdict.grade != "proven" and verdict.cause != "none":
        for host in wanted[:2]:
            rows.append(
                Missing(
                    f"kernel log of {host}",
                    "not collected",
                    "OOM kills, GPU and storage errors at that time",
                    f"ssh {host} dmesg -T > {host}.dmesg",
                )
            )
    if not job.world_told and verdict.cause != "none" and verdict.rank_grade not in ("proven", "likely"):
        rows.append(
            Missing(
                "the number of ranks",
                "no line tells the world size",
                "who is missing can only be told if it is known",
                "--world-size N",
            )
        )
    return tuple(dict.fromkeys(rows))


def _clocks(job: Job) -> list[Missing]:
    """Hosts whose times were corrected: by what their clock said when it was asked."""
    return [
        Missing(
            f"the right time on {host}",
            f"its clock is {span(off)} {'behind' if off < 0 else 'ahead'}: its times here are corrected by that, those in its lines are not",
            "whether it was as far off during the incident: who was first rests on it",
            f"ssh {host} 'chronyc tracking; journalctl -u chronyd -u ntpd'",
        )
        for host, off in sorted(offsets(job.facts).items())[:3]
    ]


def _second_snapshots(found: Findings) -> list[Missing]:
    """Counters that were read only once: the totals say nothing, a second reading would."""
    hosts: dict[str | None, list[Fact]] = {}
    for fact in found.counters.lone:
        name = str(fact["name"])
        if tells_of_path(name) or re.search(r"nvlink|ecc|XID|oom_kill|major_timeouts", name):
            hosts.setdefault(fact.who.host, []).append(fact)
    rows = []
    for host, facts in list(hosts.items())[:3]:
        worst = max(facts, key=lambda fact: float(fact["value"]))
        device = worst["device"] or worst["interface"] or worst.who.gpu
        rows.append(
            Missing(
                f"a second reading of {worst['name']}{f' of {device}' if device else ''}{f' on {host}' if host else ''}",
                f"read once ({worst['value']:g}): it has been counting since the device came up",
                "whether it still grows",
                "the same command again after a minute, both outputs in one file",
            )
        )
    return rows


def when(job: Job, item: Fact | Said) -> int | None:
    """The time of a line. One without a stamp has that of the line before it: if much later ones follow, theirs."""
    if not isinstance(item, Fact) or item.at_ns is None or item.clock not in ("near", "boot"):
        return item.at_ns
    if item.clock == "boot":
        return None
    later = [
        other.at_ns
        for other in job.items()
        if other.spot.source is item.spot.source
        and other.spot.place > item.spot.place
        and other.at_ns is not None
        and other.at_ns > item.at_ns
        and (not isinstance(other, Fact) or other.clock == "wall")
    ]
    return min(later, default=item.at_ns)


def incident_at(job: Job, found: Findings) -> str | None:
    marks = [
        found.arrived.began_ns,
        when(job, found.failed.first.fact) if found.failed.first else None,
    ]
    known = [mark for mark in marks if mark is not None]
    if known:
        return iso(min(known))
    return iso(found.arrived.first.at_ns) if found.arrived.first else None
