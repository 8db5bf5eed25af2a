"""gpu_fault: a GPU, its link or its slot failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, absent_on, ago, by_dumps, facts_of, host, one, waited
from whichrank.findings import Findings
from whichrank.findings.gpu_load import rank_on
from whichrank.findings.hosts import HARD_XIDS, by_bus
from whichrank.job.model import Job, earliest, moment
from whichrank.model import Check

XID = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    61: "internal micro-controller error",
    62: "internal micro-controller halt",
    63: "row remapping event",
    64: "row remapping failure",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialisation failure",
    144: "NVLink: SAW error",
    145: "NVLink: RLW error",
    149: "NVLink: NETIR error",
    150: "NVLink: MSE error",
    158: "GPU fatal timeout",
}
_HARD = re.compile(
    r"nvlink|hardware error|HW Exception by GPU|ECC|uncorrectable|fallen off|contained|Invalid access of peer|device unavailable|unable to determine the device handle|system not yet initialized|no CUDA-capable device",
    re.I,
)


_AMD = {
    "reset": "the driver reset the GPU",
    "ring_timeout": "a ring of the GPU timed out",
    "ras": "an uncorrectable memory error (RAS)",
    "hang": "the GPU hung",
}
# Counters of a GPU whose growth tells, from what growth on, and the weight
_GROWING = (
    (
        re.compile(
            r"ecc_.*(?:uncorrect|double|dbe)|ecc\.errors\.uncorrected|DBE|remapp.*(?:uncorrect|fail)|total_uncorrectable",
            re.I,
        ),
        1,
        4.0,
    ),
    (re.compile(r"nvlink_recovery|NVLINK_RECOVERY", re.I), 1, 2.5),
    (re.compile(r"nvlink_(?:replay|crc)|NVLINK_(?:CRC|REPLAY)", re.I), 100, 2.0),
    (re.compile(r"pcie_replay", re.I), 1000, 1.0),
)


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    if (told := by_dumps(found, "gpu_hang")) is not None:
        traced = told.traced
        yield Clue(
            2.0, "dump", told.says, told.proofs, traced.culprits, mechanism="gpu_hang", sure_of_ranks=traced.sure
        )
    yield from _kernel(job, found)
    yield from _watched(job, found)
    yield from _errors(job, found)
    yield from _measured(found)
    yield from _joined_otherwise(job, found)
    yield from straggler.hinted(job, found, "gpu")
    for stack in found.stacks.mains:
        frames = " ".join(str(frame) for frame in stack.fact["frames"] or ())
        if (
            stack.rank is not None
            and re.search(r"cudaLaunchKernel|libcuda\.so|cuLaunchKernel|cuCtxSynchronize", frames)
            and stack in found.stacks.odd + tuple(s for s in found.stacks.mains if len(found.stacks.mains) == 1)
        ):
            yield Clue(
                1.5,
                "stack",
                f"rank {stack.rank} hangs inside the CUDA driver",
                (stack.fact,),
                one(stack.rank),
                host(job.host_of(stack.rank)),
                sure_of_ranks=0.9,
            )
            break
    if found.ending.well:
        yield Clue(-6.0, "time", "the job ended well", facts_of([found.ending.success]))


def _kernel(job: Job, found: Findings) -> Iterator[Clue]:
    hard = [joined for joined in found.gpus if not (joined.fact.kind == "xid" and joined.fact["code"] in (63, 92))]
    if not hard:
        return
    joined = next((j for j in hard if j.rank is not None), hard[0])
    there = _absent_there(job, found, joined.host)
    if joined.rank in found.arrived.waiting and there and joined.rank not in there:
        joined = replace(
            joined, rank=None
        )  # the order of devices is not known: the silent rank of that host is likelier
    fact = joined.fact
    what = (
        f"Xid {fact['code']} ({XID.get(fact['code'], 'hardware')})"
        if fact.kind == "xid"
        else "the GPU is lost"
        if fact.kind == "gpu_lost"
        else f"{_AMD.get(str(fact['what']), 'a GPU error')}"
        if fact.kind == "gpu_error"
        else "a fatal PCIe error"
        if fact.kind == "pcie_error"
        else "a fatal NVSwitch error"
    )
    where = joined.host or "a host"
    ranks = one(joined.rank) or _absent_there(job, found, joined.host)
    proofs = [j.fact for j in hard if j.host == joined.host and j.fact is not fact]
    errors = [e for e in job.of("cuda_error") if joined.rank is not None and e.rank == joined.rank]
    kinds = [
        fact,
        *{p.kind: p for p in proofs if p.kind != fact.kind}.values(),
        *errors[:1],
        *(f for f in job.of("visible_devices") if joined.rank is not None),
    ][:5]
    kinds += [p for p in proofs if p.kind == "pcie_error" and "severity" in p.spot.excerpt][:1]
    kinds += [tie] if joined.rank is not None and (tie := job.tie(joined.rank, gpu=True)) is not None else []
    weight = (
        6.5
        if joined.rank is not None
        else 5.5
        if joined.host and (job.ranks_on(joined.host) or len(job.hosts) <= 1)
        else 4.0
    )
    yield Clue(
        weight,
        "kernel",
        f"{what} on {where}{ago(job, found, fact)}"
        + (f": the GPU of rank {joined.rank}" if joined.rank is not None else ""),
        tuple(kinds),
        ranks,
        host(joined.host),
        decisive=fact.kind in ("xid", "gpu_lost", "gpu_error") and joined.rank is not None,
        sure_of_ranks=0.74
        if joined.rank is None
        else 0.6
        if joined.rank in found.arrived.waiting and found.arrived.suspects
        else 0.95,
    )
    if joined.rank is not None:
        exits = [e for e in job.of("exit") if e.rank == joined.rank and e["signal"] in (9, "SIGKILL")]
        if joined.rank in found.arrived.suspects:
            yield Clue(
                1.0,
                "absence",
                f"rank {joined.rank} is the one that printed no timeout",
                tuple(exits[:1]) or waited(found),
            )


def _watched(job: Job, found: Findings) -> Iterator[Clue]:
    """Counters of a GPU that grew between two snapshots, an Xid that a metric changed to, a failed health check."""
    for growth in found.counters.grown:
        weight = next((w for pattern, least, w in _GROWING if pattern.search(growth.name) and growth.by >= least), None)
        xid = growth.after["value"] if "XID" in growth.name else None
        if xid in HARD_XIDS:
            weight = 4.5
        if weight is None:
            continue
        rank = by_bus(job, growth.host, str(growth.after.who.gpu or growth.device or ""))
        if rank is None and (index := re.match(r"gpu (\d+)", growth.device or "")) is not None:
            rank = job.local(growth.host, int(index[1]))
        says = (
            growth.says if xid is None else f"the last Xid of {growth.device} on {growth.host or 'a host'} became {xid}"
        )
        yield Clue(weight, "counters", says, growth.proof, one(rank), host(growth.host), sure_of_ranks=0.74)
        break
    for fact in job.of("gpu_health"):
        if fact["state"] == "failure":
            rank = job.local(fact.who.host, fact["index"]) if isinstance(fact["index"], int) else None
            which = f"GPU {fact['index']}" if fact["index"] is not None else "a GPU"
            says = f"a health check failed for {which} on {fact.who.host or 'a host'}"
            yield Clue(3.0, "gpu", says, (fact,), one(rank), host(fact.who.host), sure_of_ranks=0.7)
            break
    for fact in job.of("gpu_error"):
        if fact["what"] == "page_fault" and fact.who.pid is not None and not found.gpus:
            rank = job.rank_by_pid(fact.who.pid, fact.who.host)
            if rank is not None:
                says = f"the GPU of rank {rank} met an address that is not mapped"
                yield Clue(1.0, "kernel", says, (fact,), one(rank), host(fact.who.host))
                break


def _measured(found: Findings) -> Iterator[Clue]:
    """nccl-tests within a host: wrong values, or one host whose GPUs talk far slower than the others'."""
    ran = found.network.measured
    for fact in ran.wrong[:1]:
        hosts = [str(name) for name in fact["hosts"] or ()]
        alone = tuple(hosts) if len(hosts) == 1 else ()
        yield Clue(
            5.0 if alone else 2.5,
            "gpu",
            f"{fact['test'] or 'nccl-tests'} on {', '.join(hosts[:4]) or 'a host'} gave {fact['count']} wrong values: a GPU or its link corrupts data",
            ran.wrong[:2],
            (),
            alone,
        )
    if ran.slow and ran.inside and ran.host and ran.usual is not None:
        yield Clue(
            4.5,
            "progress",
            f"within {ran.host} GPUs reach {ran.slow[0]['busbw']:g} GB/s, within the other hosts up to {ran.usual['busbw']:g}",
            facts_of([*ran.slow[:2], ran.usual]),
            (),
            host(ran.host),
        )
    short = ran.short
    if short is not None and short.inside:
        name = next(iter(short.fact["hosts"] or ()), None)
        yield Clue(
            2.0,
            "progress",
            f"within {name or 'the host'} all_reduce reaches {short.fact['busbw']:g} GB/s, such machines {short.reached.busbw:g} ({short.reached.source}): NVLink or peer-to-peer access is not what it should be",
            (short.fact,),
            (),
            host(name),
        )


def _joined_otherwise(job: Job, found: Findings) -> Iterator[Clue]:
    """A host that has lost NVLinks which its like have. NCCL goes another way by itself: it need not be what hung."""
    for less in found.unlike:
        if less.lost != "nvlink":
            continue
        alone, where = less.fact["alone"], less.fact.who.host
        rank = rank_on(job, less.fact, alone[0]) if len(alone) == 1 else None
        absent = rank is not None and rank in found.arrived.suspects
        weight = 4.0 if absent and less.sure else 3.0 if less.sure else 1.0
        says = f"{less.says}: that of rank {rank}" if rank is not None else less.says
        yield Clue(weight, "setup", says, (less.fact, less.usual), one(rank), host(where), sure_of_ranks=0.7)
        return


def _errors(job: Job, found: Findings) -> Iterator[Clue]:
    errors = sorted((fact for fact in job.of("cuda_error") if not fact["caught"]), key=moment)
    hard = [fact for fact in errors if fact["hardware"] or _HARD.search(fact.spot.excerpt)]
    fact = earliest(hard)
    if fact is not None:
        earlier = [
            failure
            for failure in found.failed.roots
            if moment(failure.fact) < moment(fact) and failure.fact.spot.line != fact.spot.line
        ]
        yield Clue(
            5.0 if not earlier else 1.5,
            "traceback",
            f"rank {fact.rank if fact.rank is not None else '?'} was the first to report a hardware-level CUDA error{ago(job, found, fact)}",
            (fact,),
            one(fact.rank),
            host(fact.who.host or job.host_of(fact.rank)),
            sure_of_ranks=0.72,
        )
        return
    soft = earliest(errors)
    if soft is not None and re.search(
        r"launch failure|illegal memory|illegal instruction|misaligned|launch timed out|unknown error",
        soft.spot.excerpt,
        re.I,
    ):
        hosted = any(j.host in (None, soft.who.host, job.host_of(soft.rank)) for j in found.gpus)
        yield Clue(
            2.0 if hosted else 0.8,
            "traceback",
            f"rank {soft.rank if soft.rank is not None else '?'} got a CUDA error{ago(job, found, soft)}",
            (soft,),
            one(soft.rank),
            host(soft.who.host or job.host_of(soft.rank)),
            sure_of_ranks=0.9,
        )


def _absent_there(job: Job, found: Findings, where: str | None) -> tuple[int, ...]:
    if ranks := absent_on(job, found, where):
        return ranks
    erring = tuple(
        sorted(
            {
                fact.rank
                for fact in job.of("cuda_error")
                if fact.rank is not None and job.host_of(fact.rank) in (where, None)
            }
        )
    )
    return erring if len(erring) == 1 else ()


CAUSE = Cause(
    id="gpu_fault",
    title="a GPU failed",
    means="A GPU, its memory, its NVLink or its PCIe slot failed. Its rank cannot run kernels any more, the others wait for it on the device.",
    looks_like="A Xid that names hardware (48, 64, 74, 79, 94, 95, 119, …), a fatal PCIe error or a lost device handle on one host when the collective stopped.",
    settles=(
        Check("the kernel's Xid lines", "ssh {host} \"dmesg -T | grep -iE 'NVRM|Xid|AER'\"", "{host}"),
        Check(
            "is the GPU there, and clean?",
            "ssh {host} 'nvidia-smi; nvidia-smi -q -d ECC,ROW_REMAPPER; dcgmi diag -r 2'",
            "{host}",
        ),
    ),
    fix=(
        "Take the node out and have the GPU reset or replaced (79: restart the machine; 48, 64, 95: reset the GPU, RMA when it returns; 74: check NVLink and switch).",
        "Check nodes before a job: `dcgmi diag -r 1` and dmesg in the prolog.",
    ),
    stopgap="Restart without this node.",
    weigh=weigh,
    mechanism="gpu_hang",
    verb="lost its GPU to a hardware fault",
    dont="look for a bug in the kernel that raised it: CUDA reports asynchronously",
)
