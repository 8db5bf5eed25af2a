"""p2p_shm: shared memory or peer-to-peer access within a node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, host
from whichrank.findings import Findings
from whichrank.job.model import Job, earliest, moment
from whichrank.model import Check
from whichrank.ranges import several

_P2P_CURED = re.compile(
    r"NCCL_P2P_DISABLE ?= ?1|NCCL_SHM_DISABLE ?= ?1|iommu=|\bACS\b|\bIOMMU\b|p2pBandwidthLatencyTest|NCCL_P2P_LEVEL",
    re.I,
)
_REDIRECTED = re.compile(
    r"ACSCtl|\bACS\b.*(?:enabled|SrcValid\+)|IOMMU.*enabled|iommu: Default domain type: Translated|DMAR: IOMMU enabled|AMD-Vi: .*enabled"
)
_REDIRECT = re.compile(r"ACSCtl|ACS|IOMMU|iommu|IO_PAGE_FAULT")
_WORKS = re.compile(
    r"\b(?:works?|worked|runs?|fine|ok|helps?|cures?|fixe[sd]|goes away|no hang|completes?|passes|finish(?:e[sd])?)\b",
    re.I,
)


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    errors = sorted(job.of("shm_error"), key=moment)
    if errors:
        first = errors[0]
        ranks = tuple(
            sorted(
                {
                    fact.rank
                    for fact in errors
                    if fact.rank is not None
                    and (fact.at_ns is None or first.at_ns is None or abs(fact.at_ns - first.at_ns) < 3e9)
                }
            )
        )
        where = first.who.host or (job.host_of(ranks[0]) if ranks else None)
        yield Clue(
            7.0,
            "transport",
            f"{several(ranks) if ranks else 'a rank'} could not create a shared memory segment{': ' + str(first['error']) if first['error'] else ''}",
            (first,),
            ranks,
            host(where),
            decisive=True,
            mechanism="dead",
            sure_of_ranks=0.9,
        )
    for fact in job.of("disk"):
        used = fact["used_percent"]
        if "shm" in str(fact["mount"]) and isinstance(used, int) and used >= 90:
            yield Clue(
                2.0, "settings", f"{fact['mount']} ({fact['size']}) is {used} % full", (fact,), (), host(fact.who.host)
            )
            break
    bus = earliest(job.of("dl_bus_error"))
    if bus is not None:
        yield Clue(
            6.5,
            "traceback",
            "a DataLoader worker died of a bus error: shared memory is too small",
            (bus,),
            (bus.rank,) if bus.rank is not None else (),
            host(bus.who.host or job.host_of(bus.rank)),
            decisive=True,
            mechanism="dead",
            sure_of_ranks=0.9,
        )
    yield from _p2p(job, found)


def _p2p(job: Job, found: Findings) -> Iterator[Clue]:
    """A hang in the first collectives on one node, and signs that peer-to-peer access is what breaks."""
    cured = [line for line in job.saying(_P2P_CURED) if _WORKS.search(line.text)]
    mentioned = job.saying(_REDIRECTED)
    facts = job.of("p2p_info")
    early = bool(found.arrived.waits) and all(wait.seq in (0, 1, 2, 3, None) for wait in found.arrived.waits)
    off = [
        fact
        for fact in job.of("env_set")
        if str(fact["name"]) in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") and str(fact["value"]) == "1"
    ]
    for fact in off:
        moved = next((beat for beat in found.beats if beat.source == fact.spot.source.path and beat.count >= 3), None)
        if (
            moved is not None
            and found.arrived.first is not None
            and found.arrived.first.spot.source is not fact.spot.source
        ):
            yield Clue(
                5.5,
                "settings",
                f"with {fact['name']}=1 the same job makes progress",
                (fact, moved.last),
                (),
                host(fact.who.host),
                mechanism="gpu_hang",
            )
            break
    if cured:
        yield Clue(4.5, "settings", "with peer-to-peer access switched off it works", (cured[0],), mechanism="gpu_hang")
    if mentioned or any(_REDIRECT.search(str(fact["text"])) for fact in facts):
        proof = [fact for fact in facts if _REDIRECT.search(str(fact["text"]))][:2] or mentioned[:1]
        yield Clue(
            2.5 if early or cured else 1.0,
            "kernel",
            "IOMMU or PCIe ACS is on: peer-to-peer traffic is redirected and can stall",
            tuple(proof),
            mechanism="gpu_hang",
        )
    if early and found.arrived.everyone_waited and len(job.hosts) <= 1 and not found.beats:
        yield Clue(
            1.2,
            "watchdog",
            "all ranks of one node entered the first collective and none finished",
            (found.arrived.waits[0].fact,),
            mechanism="gpu_hang",
        )
    xid = [fact for fact in job.of("iommu_fault", "xid") if fact.kind == "iommu_fault" or fact["code"] == 31]
    if xid and early:
        yield Clue(1.0, "kernel", "the kernel reports an MMU or IOMMU fault", (xid[0],))


CAUSE = Cause(
    id="p2p_shm",
    title="shared memory or peer-to-peer access within the node",
    means="Ranks of one node talk through /dev/shm or directly over PCIe/NVLink. The shared memory is too small or full, or peer-to-peer transfers stall (IOMMU, ACS, virtualisation).",
    looks_like="'Error while creating shared memory segment', bus errors of DataLoader workers; or a hang in the very first collective that goes away with NCCL_P2P_DISABLE=1.",
    settles=(
        Check("how large and how full is it?", "ssh {host} 'df -h /dev/shm; ls -la /dev/shm | head'", "{host}"),
        Check(
            "is peer-to-peer what hangs?",
            "ssh {host} 'NCCL_P2P_DISABLE=1 all_reduce_perf -b 8 -e 128M -f 2 -g 8; nvidia-smi topo -p2p r; lspci -vvv | grep -i acsctl | head; dmesg | grep -iE iommu | head'",
            "{host}",
        ),
    ),
    fix=(
        "Give the container shared memory: docker --shm-size=16g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory mounted at /dev/shm; remove left-over /dev/shm/nccl-* files.",
        "For peer-to-peer: switch off IOMMU translation (iommu=pt) or PCIe ACS in BIOS/bridges on bare metal.",
    ),
    stopgap="NCCL_P2P_DISABLE=1 (slower, works) or NCCL_SHM_DISABLE=1; fewer DataLoader workers.",
    weigh=weigh,
    mechanism="dead",
    verb="failed on shared memory or peer-to-peer access",
    dont="look at the network between the nodes: this is inside one node",
)
