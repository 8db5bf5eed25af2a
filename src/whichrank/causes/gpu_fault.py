"""gpu_fault: a GPU, its link or its slot failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, absent_on, ago, facts_of, host, one, waited
from whichrank.findings import Findings
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
    r"nvlink|hardware error|ECC|uncorrectable|fallen off|contained|Invalid access of peer|device unavailable|unable to determine the device handle|system not yet initialized|no CUDA-capable device",
    re.I,
)


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    yield from _kernel(job, found)
    yield from _errors(job, found)
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
        decisive=fact.kind in ("xid", "gpu_lost") and joined.rank is not None,
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
