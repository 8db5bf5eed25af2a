"""slow_storage: a mount, a file server or a disk stood still."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, absent_on, ago, host, pressure
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.hosts import Joined, timely
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several


def _what(fact: Fact) -> str:
    """ "nfs server fs1", "disk nvme2"."""
    if fact["server"]:
        return f"{fact['fs'] or 'storage'} server {fact['server']}"
    if fact["device"]:
        return f"disk {fact['device']}"
    return f"{fact['fs'] or 'storage'}"


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    stalls = [joined for joined in found.storage if joined.fact.kind in ("storage_stall", "io_error")]
    hung = [joined for joined in found.storage if joined.fact.kind == "hung_task"]
    joined_ranks = tuple(sorted({joined.rank for joined in hung if joined.rank is not None}))
    hosts = Counter(joined.host for joined in stalls if joined.host)
    where = hosts.most_common(1)[0][0] if len(hosts) == 1 else None
    if joined_ranks:  # the kernel names a few of the tasks that it sees blocked; stacks show who else writes there
        beside = (stack.rank for stack in found.stacks.odd if stack.kind in ("file_io", "checkpoint"))
        joined_ranks = tuple(sorted({*joined_ranks, *(r for r in beside if r is not None and job.host_of(r) in hosts)}))
    there = joined_ranks or absent_on(job, found, where)
    if stalls:
        fact = stalls[0].fact
        everyone = found.stacks.all_same in ("file_io", "checkpoint", "data_wait") or len(hosts) > 1
        weight = 5.5 if there or everyone else 3.5 if not found.failed.roots else 1.5
        if found.ending.well or found.ending.alive:
            weight = 0.0
        yield Clue(
            weight,
            "kernel",
            f"{_what(fact)} did not answer{' on ' + where if where else ''}{ago(job, found, fact)}",
            (fact, *[j.fact for j in hung[:1]]),
            there,
            host(where),
            decisive=bool(joined_ranks),
            sure_of_ranks=0.95 if joined_ranks else 0.85,
        )
    elif hung and any(_file_io(joined) for joined in hung):
        joined = next(j for j in hung if _file_io(j))
        yield Clue(
            4.5 if joined.rank is not None else 3.0,
            "kernel",
            f"task {joined.fact['comm']} (pid {joined.fact.who.pid}) was blocked in file I/O for {joined.fact['seconds']} s on {joined.host or 'a host'}",
            (joined.fact,),
            joined_ranks,
            host(joined.host),
            sure_of_ranks=0.93 if joined_ranks else 0.5,
        )
    yield from _silent(job)
    yield from _held(job, found)
    yield from _measured(job, found)
    stacks = straggler.idle_reader(job, found, "file_io")
    if stacks and not (stalls and everyone_reads(found)):
        yield straggler.stood(job, found, stacks, 3.5, "is inside a read or write on a file")
    if everyone_reads(found):
        reading = [stack.fact for stack in found.stacks.children if stack.kind == "file_io"] or [
            stack.fact for stack in found.stacks.mains
        ]
        yield Clue(2.5, "stack", "all sampled ranks are inside file reads: no odd rank out", tuple(reading[:2]))
    for doing, ranks in straggler.busy(job, found, "data", "loading"):
        if there and set(ranks) <= set(there):
            yield Clue(
                1.0, "talk", f"the last thing that {several(ranks)} printed was about reading", (doing.last,), ranks
            )
            break


def _silent(job: Job) -> Iterator[Clue]:
    """A mount that a stuck process has open, and that was asked during the stall and gave no answer."""
    silent = job.of("mount_silent")
    if silent:
        ranks = tuple(sorted({fact.rank for fact in silent if fact.rank is not None}))
        where = {fact.who.host for fact in silent if fact.who.host}
        fact = silent[0]
        kind = f" ({fact['type']})" if fact["type"] else ""
        says = f"{fact['mount']}{kind}, which {several(ranks)} has open, did not answer within {fact['seconds']:.0f} s"
        yield Clue(6.0, "counters", says, tuple(silent[:2]), ranks, tuple(sorted(where)), sure_of_ranks=0.9)


def _held(job: Job, found: Findings) -> Iterator[Clue]:
    """The kernel holds the process that the rank waits for in a read or write. Where the rank itself stands says no less
    then than it would say of slow data or a slow checkpoint: these are what waits for the storage."""
    waits = straggler.held_by_storage(job)
    if not waits:
        yield from _seen_waiting(job, found)
        return
    fact = waits[-1]
    ranks = tuple(sorted({wait.rank for wait in waits if wait.rank is not None}))
    own = ranks and ranks[0] in job.ranks and job.ranks[ranks[0]].pid == fact.who.pid
    on = f" on {fact['mount']} ({fact['type']})" if fact["mount"] else ""
    says = f"{'the process' if own else 'a worker'} of {several(ranks)} is held in a read or write{on}: {fact['bytes']} bytes in {fact['seconds']:.1f} s"
    where = {wait.who.host for wait in waits if wait.who.host}
    yield Clue(6.5, "kernel", says, tuple(waits[:2]), ranks, tuple(sorted(where)), sure_of_ranks=0.93)
    yield from _above(job, found)


def _seen_waiting(job: Job, found: Findings) -> Iterator[Clue]:
    """One look at the kernel's stack of the late rank, or of its worker, and it waited for storage."""
    waits = found.storage_waits
    if waits:
        ranks = tuple(sorted({wait.rank for wait in waits}))
        first = waits[0]
        # Whoever writes a checkpoint may have much to write, and a worker reads now and then: the look itself tells
        # little more for the storage than for what is above it, which the other clues are of as well.
        weight = 1.0 if first.writes else 1.5 if first.served else 1.2
        facts = tuple(wait.fact for wait in waits[:2])
        yield Clue(weight, "kernel", first.says, facts, ranks, host(job.host_of(ranks[0])), sure_of_ranks=0.9)
        yield from _above(job, found)
        if first.writes:
            yield from straggler.talked(job, found, 4.5, "checkpoint")


def _above(job: Job, found: Findings) -> Iterator[Clue]:
    """Where the rank itself stands, which the storage holds up."""
    yield from straggler.phased(job, found, 4.0, "data", "checkpoint", "evaluation", "compute", "unknown")
    stacks = straggler.idle_reader(job, found, "data_wait", "checkpoint")
    if stacks:
        yield straggler.stood(job, found, stacks, 5.0, "waits for what is read or written there")


SLOW_MS, SLOW_NFS_MS = 1000.0, 2000.0  # mean wait of a request in an interval: a disk's, a file server's
_TIMEOUTS = re.compile(r"nfs_\w+_major_timeouts|nfs_rpc_retransmissions")


def _measured(job: Job, found: Findings) -> Iterator[Clue]:
    """Tools that timed the requests during the hang: slow in every interval that was measured."""
    samples: dict[tuple[str | None, str], list[Fact]] = defaultdict(list)
    for fact in job.of("io_sample"):
        if fact["interval"] and timely(fact, found.window):
            samples[fact.who.host, str(fact["mount"] or fact["device"])].append(fact)
    slow = {key: facts for key, facts in samples.items() if all(_is_slow(fact) for fact in facts)}
    if slow:
        (where, what), facts = max(slow.items(), key=lambda entry: max(float(f["await_ms"]) for f in entry[1]))
        alone = len({name for name, _ in slow}) == 1
        worst = max(facts, key=lambda fact: float(fact["await_ms"]))
        there = absent_on(job, found, where) if alone else ()
        yield Clue(
            4.5 if there else 3.0 if alone else 2.5,
            "counters",
            f"requests to {what}{' on ' + where if where else ''} took {float(worst['await_ms']) / 1000:.3g} s on average",
            (worst,),
            there,
            host(where) if alone else (),
            sure_of_ranks=0.7,
        )
        for doing, ranks in straggler.busy(job, found, "data", "loading", "checkpoint"):
            if there and set(ranks) <= set(there):
                says = f"the last thing that {several(ranks)} printed was about reading or writing"
                yield Clue(1.5, "talk", says, (doing.last,), ranks)
                break
    for growth in found.counters.of(_TIMEOUTS):
        ranks = absent_on(job, found, growth.host)
        yield Clue(2.5, "counters", growth.says, (growth.after,), ranks, host(growth.host), sure_of_ranks=0.6)
        break
    yield from pressure(job, found, "io", 2.0, "{} waited for its disks or file systems", 0.6)


def _is_slow(fact: Fact) -> bool:
    wait = fact["await_ms"]
    return isinstance(wait, float) and wait >= (SLOW_NFS_MS if fact["mount"] else SLOW_MS)


def everyone_reads(found: Findings) -> bool:
    return found.stacks.all_same == "file_io"


def _file_io(joined: Joined) -> bool:
    frames = " ".join(str(frame) for frame in joined.fact["frames"] or ())
    return any(
        word in frames
        for word in (
            "nfs",
            "lustre",
            "ll_",
            "ceph",
            "gpfs",
            "xfs",
            "ext4",
            "fuse",
            "vfs_read",
            "vfs_write",
            "folio_wait",
            "wait_on_page",
            "io_schedule",
            "blk_",
            "jbd2",
            "filemap",
        )
    )


CAUSE = Cause(
    id="slow_storage",
    title="storage that does not answer",
    means="A file server, a mount or a disk stood still; the process that reads or writes there waits in the kernel and cannot reach the collective.",
    looks_like="'server not responding', hung tasks in nfs/lustre/ext4 functions, processes in state D, a stack that ends in read() or write().",
    settles=(
        Check(
            "is the mount alive?",
            "ssh {host} 'timeout 5 stat -f MOUNT || echo no answer; dmesg -T | grep -iE \"not responding|blocked for more|lustre|I/O error\" | tail'",
            "{host}",
        ),
        Check("where the process waits", "ssh {host} 'cat /proc/{pid}/stack /proc/{pid}/wchan'", "{host}"),
    ),
    fix=(
        "A disk of the node itself (NVMe, RAID): take the node out and have the disk looked at (nvme smart-log, smartctl -a), then replaced.",
        "Shared storage: take it off the step: stage shards to node-local disk, prefetch with a bound, DataLoader(timeout=…) so that a stuck read raises.",
        "Have the storage team look at the server named here at that time; spread readers and use more mounts (nconnect) where many ranks read at once.",
    ),
    stopgap="Resume once the storage answers again.",
    weigh=weigh,
    mechanism="host_stuck",
    verb="was stuck on storage that did not answer",
    dont="look for it in NCCL: the rank never got that far",
)
