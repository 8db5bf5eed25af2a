"""NCCL's lists of operations side by side: behind, ahead, another call, opposite order; and where they say nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from incident import LAYOUTS, SURE, Incident, named, surely_named, told

from whichrank.evidence import read
from whichrank.findings import examine
from whichrank.job.build import build

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
WORLD = "0x7c1f0a9be2d3f411"
Call = tuple[str, int]  # operation, count
LOOP: tuple[Call, ...] = (("AllGather", 3276800), ("AllReduce", 524288), ("ReduceScatter", 3276800))


class Listed(Incident):
    """An incident whose ranks print what they enqueue. opCounts follow each communicator."""

    counts: dict[tuple[int, str], int]

    def begin(self, **groups: Sequence[int]) -> None:
        """NCCL's init of the world, and of named groups: what all later lines point to."""
        self.init()
        self.counts = {}
        self.groups = {name: list(members) for name, members in groups.items()}
        for number, (name, members) in enumerate(self.groups.items()):
            for place, rank in enumerate(members):
                self.raw(
                    1 + number,
                    self.file_of(rank),
                    f"{self.tag(rank)} NCCL INFO ncclCommInitRankConfig comm {self.pointer(rank, name)} rank {place} nranks {len(members)} "
                    f"cudaDev {self.local(rank)} nvmlDev {self.local(rank)} busId {self.bus(rank)} commId 0x51c0{number:x}f0 - Init COMPLETE",
                )

    def tag(self, rank: int) -> str:
        return f"{self.host(rank)}:{self.pid(rank)}:{self.pid(rank) + 3} [{self.local(rank)}]"

    def pointer(self, rank: int, group: str) -> str:
        return f"0x55d0b65c{rank:04x}" if group == "world" else f"0x7f{sum(map(ord, group)):04x}{rank:04x}"

    def call(self, at: float, ranks: Iterable[int], call: Call, group: str = "world", skip: int = 0) -> None:
        members = self.ranks if group == "world" else self.groups[group]
        for rank in ranks:
            number = self.counts[rank, group] = self.counts.get((rank, group), -1) + 1 + skip
            self.raw(
                at,
                self.file_of(rank),
                f"{self.tag(rank)} NCCL INFO {call[0]}: opCount {number:x} sendbuff 0x7f02{number:08x} recvbuff 0x7f02{number:08x} count {call[1]} "
                f"datatype 9 op 0 root 0 comm {self.pointer(rank, group)} [nranks={len(members)}] stream 0x55d0c41f2e60",
            )

    def loop(self, turns: int, ranks: Iterable[int] | None = None, at: float = 10.0, every: float = 2.0) -> float:
        for turn in range(turns):
            for number, call in enumerate(LOOP):
                self.call(at + turn * every + 0.1 * number, self.ranks if ranks is None else list(ranks), call)
        return at + turns * every


@every_layout
def test_who_called_less_is_behind(layout: str, tmp_path: Path) -> None:
    job = Listed(layout=layout)
    job.begin()
    end = job.loop(30)
    job.call(end, job.others(5), LOOP[0])
    job.time_out(end + 602, seq=91, but=[5])

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [5], told(verdict)
    assert verdict.rank_grade in SURE, told(verdict)


@every_layout
def test_who_waits_for_the_late_one_is_late_elsewhere(layout: str, tmp_path: Path) -> None:
    """Rank 5 calls nothing more; its partner 4 waits for it in their pair and so is missing in its other groups as well."""
    job = Listed(layout=layout)
    job.begin(data=[2, 4, 6], pair=[4, 5])
    end = job.loop(10)
    job.call(end, [2, 4, 6], ("AllReduce", 4096), "data")
    job.call(end, [4, 5], ("AllReduce", 64), "pair")
    job.call(end + 1, [4], ("AllReduce", 64), "pair")
    job.call(end + 1, [2, 6], ("AllReduce", 4096), "data")
    job.call(end + 1, job.others(4, 5), LOOP[0])
    job.time_out(end + 602, seq=31, but=[4, 5])

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [5], told(verdict)


def test_the_call_that_differs_is_the_line_that_is_shown(tmp_path: Path) -> None:
    """Rank 3 made another call than the rest, and all called something after it: the proof is not the last line."""
    job = Listed(layout="per-rank")
    job.begin()
    end = job.loop(10)
    job.call(end, [3], ("Broadcast", 77))
    job.call(end, job.others(3), ("AllReduce", 555))
    job.call(end + 1, job.ranks, ("AllGather", 999))
    job.time_out(end + 602, seq=31)

    verdict = job.verdict(tmp_path)

    shown = [proof.excerpt for proof in verdict.because if "opCount" in proof.excerpt]
    assert any("Broadcast" in line and "count 77" in line for line in shown), told(verdict)
    assert any("AllReduce" in line and "count 555" in line for line in shown), told(verdict)


def test_ahead_is_not_guilty(tmp_path: Path) -> None:
    job = Listed()
    job.begin()
    end = job.loop(10)
    job.call(end, [1, 6], LOOP[0])
    job.time_out(end + 602, seq=31)

    verdict = job.verdict(tmp_path)

    assert not {1, 6} & set(surely_named(verdict)), told(verdict)


def test_lost_lines_put_nobody_behind(tmp_path: Path) -> None:
    """The collector dropped a line of rank 5: its opCount jumps where no other's does."""
    job = Listed()
    job.begin()
    end = job.loop(10)
    job.call(end, job.others(5), LOOP[0])
    job.call(end + 1, job.others(5), LOOP[1])
    job.call(end + 1, [5], LOOP[1], skip=1)
    job.time_out(end + 602, seq=32)

    verdict = job.verdict(tmp_path)

    assert 5 not in surely_named(verdict), told(verdict)
    assert not verdict.cause.startswith("desync"), told(verdict)


def test_a_list_without_its_beginning_is_not_compared(tmp_path: Path) -> None:
    job = Listed()
    job.begin()
    job.loop(10)
    whole = [entry for entry in job.entries if "opCount" in entry.text]
    dropped = {id(entry) for entry in whole if "opCount 0 " not in entry.text}
    job.entries = [entry for entry in job.entries if id(entry) in dropped]  # no init, no first operation
    job.call(100, job.others(5), LOOP[0])
    job.time_out(702, seq=31)

    verdict = job.verdict(tmp_path)

    assert 5 not in surely_named(verdict), told(verdict)


@every_layout
def test_another_count_at_the_same_place(layout: str, tmp_path: Path) -> None:
    job = Listed(layout=layout)
    job.begin()
    end = job.loop(10)
    job.call(end, job.others(3), ("AllReduce", 65536))
    job.call(end, [3], ("AllReduce", 65408))
    job.time_out(end + 602, seq=31)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.mechanism) == ("desync_mismatch", "mismatch"), told(verdict)
    assert set(named(verdict)) <= {3}, told(verdict)
    assert verdict.rank_grade != "proven", "a majority alone proves nobody wrong"


def test_half_against_half_names_nobody(tmp_path: Path) -> None:
    job = Listed()
    job.begin()
    end = job.loop(10)
    job.call(end, [0, 1, 2, 3], ("AllReduce", 65536))
    job.call(end, [4, 5, 6, 7], ("AllReduce", 65408))
    job.time_out(end + 602, seq=31)

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "desync_mismatch" and named(verdict) == [], told(verdict)


@every_layout
def test_one_operation_left_out(layout: str, tmp_path: Path) -> None:
    job = Listed(layout=layout)
    job.begin()
    end = job.loop(10)
    job.call(end, job.others(2), ("AllReduce", 1))
    later = job.loop(3, at=end + 1)
    job.time_out(later + 602, seq=40, ranks=job.others(2))
    job.time_out(later + 602, seq=39, ranks=[2])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("desync_conditional", [2]), told(verdict)
    assert "left out AllReduce" in verdict.says + " ".join(proof.says for proof in verdict.because), told(verdict)


@every_layout
@pytest.mark.parametrize("crosswise", [False, True])
def test_two_communicators_in_opposite_order(layout: str, crosswise: bool, tmp_path: Path) -> None:
    job = Listed(layout=layout, ranks=4, hosts=1)
    job.begin(expert=[0, 1, 2, 3])
    end = 10.0
    for _ in range(10):
        job.call(end, job.ranks, LOOP[1])
        job.call(end + 0.5, job.ranks, LOOP[0], "expert")
        end += 1
    job.call(end, [0, 2], LOOP[1])
    job.call(end, [1, 3], LOOP[0], "expert")
    if not crosswise:  # both calls were made by all, the other way round
        job.call(end + 1, [0, 2], LOOP[0], "expert")
        job.call(end + 1, [1, 3], LOOP[1])
    job.time_out(end + 602, seq=11)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.mechanism, named(verdict)) == ("desync_order", "deadlock", []), told(verdict)


def test_a_job_that_ended_well_has_no_desync(tmp_path: Path) -> None:
    job = Listed()
    job.begin()
    end = job.loop(20)
    job.finishes(end)

    verdict = job.verdict(tmp_path)

    assert verdict.cause in ("none", "undecided") and not surely_named(verdict), told(verdict)


def test_send_and_recv_need_no_partner_at_the_same_place(tmp_path: Path) -> None:
    """A pipeline: the first stage sends, the last receives, the ones between do both."""
    job = Listed(ranks=4, hosts=1)
    job.begin()
    end = job.loop(5)
    for _ in range(6):
        job.call(end, [0], ("Send", 4096))
        job.call(end, [3], ("Recv", 4096))
        job.call(end, [1, 2], ("Recv", 4096))
        job.call(end + 0.5, [1, 2], ("Send", 4096))
        end += 1
    end = job.loop(2, at=end)
    job.time_out(end + 602, seq=21)

    verdict = job.verdict(tmp_path)

    assert not verdict.cause.startswith("desync") and not surely_named(verdict), told(verdict)


def split(job: Listed, group: str, members: Sequence[int], color: int, at: float = 3.0) -> None:
    """The init line of ncclCommSplit (2.26 and newer): no id, but the parent, and the color that tells the halves apart."""
    job.groups[group] = list(members)
    for place, rank in enumerate(members):
        job.raw(
            at,
            job.file_of(rank),
            f"{job.tag(rank)} NCCL INFO ncclCommSplit comm {job.pointer(rank, group)} rank {place} nranks {len(members)} cudaDev {job.local(rank)} "
            f"nvmlDev {job.local(rank)} busId {job.bus(rank)} parent {job.pointer(rank, 'world')} splitCount 1 color {color} key {rank} - Init COMPLETE",
        )


def test_halves_of_a_split_are_different_communicators(tmp_path: Path) -> None:
    """The two halves run different numbers of operations of different sizes: nothing to see."""
    job = Listed()
    job.begin()
    end = job.loop(5)
    split(job, "low", [0, 1, 2, 3], 17)
    split(job, "high", [4, 5, 6, 7], 99)
    for _ in range(4):
        job.call(end, [0, 1, 2, 3], ("AllReduce", 1000), "low")
    for _ in range(9):
        job.call(end, [4, 5, 6, 7], ("AllGather", 77), "high")
    job.time_out(end + 602, seq=16)

    verdict = job.verdict(tmp_path)

    assert not verdict.cause.startswith("desync") and not surely_named(verdict), told(verdict)


def test_behind_in_one_half_of_a_split(tmp_path: Path) -> None:
    job = Listed()
    job.begin()
    end = job.loop(5)
    split(job, "low", [0, 1, 2, 3], 17)
    split(job, "high", [4, 5, 6, 7], 99)
    job.call(end, [0, 1, 2, 3], ("AllReduce", 1000), "low")
    job.call(end, [4, 6, 7], ("AllReduce", 1000), "high")
    job.time_out(end + 602, seq=1, ranks=[4, 6, 7], group="tp", group_id=1, members=[4, 5, 6, 7])

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [5], told(verdict)


def test_an_address_that_is_used_again_is_another_communicator(tmp_path: Path) -> None:
    """Rank 2's allocator gave the second communicator the first one's address, the others' did not."""
    job = Listed(ranks=4, hosts=1)
    job.begin()
    end = job.loop(5)
    for rank in job.ranks:
        pointer = job.pointer(rank, "world") if rank == 2 else f"0x66{rank:02x}00"
        line = f"{job.tag(rank)} NCCL INFO ncclCommInitRankConfig comm {pointer} rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {job.bus(rank)} commId 0x99 - Init COMPLETE"
        job.raw(end + 1, job.file_of(rank), line)
        for number in range(3):
            job.raw(
                end + 2 + number,
                job.file_of(rank),
                f"{job.tag(rank)} NCCL INFO AllReduce: opCount {number:x} sendbuff 0x7f02 recvbuff 0x7f02 count 512 datatype 9 op 0 root 0 comm {pointer} [nranks=4] stream 0x55d0",
            )
    job.time_out(end + 602, seq=16)

    verdict = job.verdict(tmp_path)

    assert not verdict.cause.startswith("desync") and not surely_named(verdict), told(verdict)


def holed(job: Listed, ranks: Sequence[int], begin: int, end: int) -> None:
    """Lines of these ranks with such opCounts are lost."""
    files = {job.file_of(rank) for rank in ranks}
    lost = {f": opCount {number:x} " for number in range(begin, end)}
    job.entries = [
        entry for entry in job.entries if entry.file not in files or not any(mark in entry.text for mark in lost)
    ]


def test_lists_with_holes_are_compared_at_their_end(tmp_path: Path) -> None:
    """Each log lost other lines in the middle: opCount tells where they stand."""
    job = Listed()
    job.begin()
    end = job.loop(30)
    job.call(end, job.others(5), LOOP[0])
    for rank in job.ranks:
        holed(job, [rank], 10 + rank, 30 + 2 * rank)
    job.time_out(end + 602, seq=91, but=[5])

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [5] and verdict.rank_grade in SURE, told(verdict)


def test_opcounts_that_do_not_fit_together_say_nothing(tmp_path: Path) -> None:
    """From NCCL 2.27 on a rank may count fewer launches: its list is shifted, and nobody left anything out."""
    job = Listed()
    job.begin()
    job.call(9, job.others(5), LOOP[0])
    end = job.loop(30)
    for rank in job.ranks:
        holed(job, [rank], 10 + rank, 30 + 2 * rank)
    job.entries = [entry for entry in job.entries if ": opCount 0 " not in entry.text]
    job.time_out(end + 602, seq=91)

    verdict = job.verdict(tmp_path)

    assert not verdict.cause.startswith("desync") and not surely_named(verdict), told(verdict)


@pytest.mark.parametrize("counting", [True, False])
def test_a_large_list_is_read_in_part(counting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of gigabytes the middle is not taken apart: what was counted means nothing, least of all where opCount stands still."""
    monkeypatch.setattr("whichrank.evidence.WHOLE", 64 << 10)
    monkeypatch.setattr("whichrank.evidence.SMALLEST", 16 << 10)
    monkeypatch.setattr("whichrank.evidence.skim.MOST", 300)
    job = Listed(ranks=4, hosts=1)
    job.begin()
    for rank in job.ranks:
        calls = []
        for number in range(3000 - (rank == 1)):
            op, count = LOOP[number % 3]
            calls += ["loading" * (10 if rank == 1 else 1)]  # of its file another part is read
            calls.append(
                f"{job.tag(rank)} NCCL INFO {op}: opCount {number if counting else 0:x} sendbuff 0x7f02 recvbuff 0x7f02 count {count} datatype 9 op 0 root 0 "
                f"comm {job.pointer(rank, 'world')} [nranks=4] stream 0x55d0"
            )
        job.raw(10, job.file_of(rank), "\n".join(calls))
    job.write(tmp_path)

    evidence = read([str(tmp_path / job.folder)])
    totals = {fact["total"] for fact in evidence.facts if fact.kind == "nccl_operations"}
    assert max(totals) < 2900 and evidence.gaps, "the test is about lists that were read in part"
    found = examine(build(evidence)[0]).enqueued

    assert found.different is None and found.inverted is None
    assert (found.late.behind if found.late else ()) == ((1,) if counting else ())
