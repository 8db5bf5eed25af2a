"""A digest answers as the files do, whatever was merged with what first; it is small, and says what it left out."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rings
from hypothesis import given, settings
from hypothesis import strategies as st
from rings import culprits, written

from whichrank import diagnose
from whichrank.evidence import read
from whichrank.evidence.digest import Damaged, joined, split
from whichrank.evidence.reduce import reduce
from whichrank.model import Report
from whichrank.report import json_report

CASES = Path(__file__).parents[1] / "cases" / "public"


def told(report: Report) -> dict[str, Any]:
    """What a report says, without the word that it comes from a digest."""
    said: dict[str, Any] = msgspec.json.decode(json_report.render(report))
    said["gaps"] = [gap for gap in said["gaps"] if "read from" not in gap["why"]]
    for incident in said.get("incidents", []):
        incident["gaps"] = [gap for gap in incident["gaps"] if "read from" not in gap["why"]]
    return said


def digest(target: Path, *paths: Path, host: str | None = None) -> Path:
    target.write_bytes(reduce([str(path) for path in paths], host).data)
    return target


def from_digest(report: Report) -> str:
    return next(gap.why for gap in report.gaps if "read from" in gap.why)


@pytest.mark.many
@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_a_digest_of_logs_answers_as_the_logs(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / case)
    made = reduce(["."])
    (tmp_path / "a.digest").write_bytes(made.data)
    if made.lines:
        pytest.skip("more than fits: another answer is possible")
    assert told(diagnose([str(tmp_path / "a.digest")])) == told(diagnose(["."]))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Dumps of eight ranks, of which 5 is stuck, and logs of two nodes."""
    folder = written(tmp_path / "run", world=8, stuck=5)
    for node in range(2):
        lines = [
            f"2025-11-30 05:{minute:02}:00 [rank{rank}] step {minute}"
            for minute in range(30)
            for rank in range(4 * node, 4 * node + 4)
        ]
        (folder / f"node-{node}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_the_host_that_is_told_is_the_host_of_its_dumps(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", world=8, stuck=5)
    made = digest(tmp_path / "node.digest", folder, host="gn-07")
    assert [(one.rank, one.host) for one in diagnose([str(made)]).verdicts[0].culprits] == [(5, "gn-07")]


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_merged_in_any_order_and_grouping(tmp_path_factory: pytest.TempPathFactory, rng: random.Random) -> None:
    """Files spread over digests at random, some twice; digests of digests: the same bytes and the same answer."""
    home = tmp_path_factory.mktemp("merge")
    folder = written(home / "run", world=8, stuck=5)
    whole = digest(home / "whole", folder)
    files = sorted(folder.iterdir())
    here = home / "parts"
    here.mkdir()
    parts = [digest(here / f"{n}", *rng.sample(files, rng.randint(1, len(files)))) for n in range(3)] + [
        digest(here / "rest", *files)
    ]
    rng.shuffle(parts)
    merged = digest(home / "merged", digest(home / "two", *parts[:2]), *parts[2:])
    again = digest(home / "again", *reversed(parts))
    assert merged.read_bytes() == again.read_bytes()
    assert digest(home / "itself", merged).read_bytes() == merged.read_bytes()
    assert culprits(diagnose([str(merged)])) == culprits(diagnose([str(whole)])) == [5]


def test_digests_lie_beside_files(run: Path, tmp_path: Path) -> None:
    made = digest(tmp_path / "rank-2.digest", run / "comm_lib_trace_rank_2")
    (run / "comm_lib_trace_rank_2").unlink()
    report = diagnose([str(run), str(made)])
    assert culprits(report) == [5]
    assert report.summary.files == 10


@pytest.mark.parametrize("host", [None, "node-3"])
def test_a_folder_that_holds_its_own_digest_counts_once(run: Path, host: str | None) -> None:
    alone = diagnose([str(run)])
    digest(run / "node.digest", run, host=host)
    report = diagnose([str(run)])
    assert culprits(report) == [5]
    assert (report.summary.files, report.summary.ranks) == (alone.summary.files, alone.summary.ranks)
    assert [gap.why for gap in report.gaps if gap.what.endswith("node.digest")] == [
        "10 files of it are here as well, or in another digest: counted once"
    ]
    assert not any("or a copy" in gap.why for gap in report.gaps)


def test_a_dump_that_was_digested_under_two_names_counts_once(run: Path, tmp_path: Path) -> None:
    """Of the two, the one that holds more calls."""
    made = [digest(tmp_path / f"{host}.digest", run, host=host) for host in ("n1", "n2")]
    evidence = read([str(path) for path in made])
    assert sorted(dump.rank or 0 for dump in evidence.dumps) == [*range(8)]


def test_a_dump_of_another_time_is_not_taken_for_a_copy(run: Path, tmp_path: Path) -> None:
    made = digest(tmp_path / "early.digest", run / "comm_lib_trace_rank_2")
    (run / "comm_lib_trace_rank_2").write_bytes(rings.dumped(2, world=8, stuck=5, calls=14))
    assert len(read([str(run), str(made)]).dumps) == 9


def test_a_log_of_the_same_name_and_size_is_another_one(tmp_path: Path) -> None:
    for host in ("n1", "n2"):
        (tmp_path / host).mkdir()
        (tmp_path / host / "train.log").write_text(f"2025-11-30 05:00:00 [rank{host[1]}] step 1\n", encoding="utf-8")
    made = digest(tmp_path / "n2.digest", tmp_path / "n2" / "train.log", host="n2")
    assert len(read([str(tmp_path / "n1" / "train.log"), str(made)]).said) == 2


def test_nodes_of_equal_file_names_are_told_apart(tmp_path: Path) -> None:
    """Each node has its /local/train.log: with --host they are files of two folders."""
    made = []
    for host in ("n1", "n2"):
        folder = tmp_path / host
        folder.mkdir()
        (folder / "train.log").write_text(f"2025-11-30 05:00:00 [rank{host[1]}] step 1\n", encoding="utf-8")
        made.append(digest(tmp_path / f"{host}.digest", folder / "train.log", host=host))
    sources = [source.path for source in read([str(path) for path in made]).sources]
    assert [path.partition("/")[0] for path in sources] == ["n1", "n2"]


def test_a_file_that_grew_between_two_digests_counts_once(run: Path, tmp_path: Path) -> None:
    log = run / "node-0.log"
    early = digest(tmp_path / "early", log)
    log.write_text(log.read_text(encoding="utf-8") + "2025-11-30 05:59:00 [rank0] the end\n", encoding="utf-8")
    late = digest(tmp_path / "late", log)
    evidence = read([str(early), str(late)])
    assert len(evidence.sources) == 1
    assert evidence.said[-1].text.endswith("the end")


def test_the_report_says_that_it_comes_from_a_digest(run: Path, tmp_path: Path) -> None:
    report = diagnose([str(digest(tmp_path / "a.digest", run))])
    assert from_digest(report) == "read from a digest of 10 files, not from the files: nothing was left out"


@pytest.mark.parametrize("calls", [3000, 60_000])
def test_never_larger_than_64_kib_a_rank(tmp_path: Path, calls: int) -> None:
    """Rings of any size and logs full of lines that are all different: the newest calls, the last words stay."""
    rng = random.Random(7)
    folder = written(tmp_path / "run", world=3, stuck=1, calls=calls)
    for rank in range(3):
        lines = [
            f"2025-11-30 05:{n // 600 % 60:02}:{n // 10 % 60:02} [rank{rank}] {rng.randbytes(40).hex()}"
            for n in range(6000)
        ]
        (folder / f"rank{rank}.log").write_text(
            "\n".join([*lines, f"[rank{rank}] last words"]) + "\n", encoding="utf-8"
        )
    made = reduce([str(folder)])
    assert made.ranks == 3 and len(made.data) < 3 * (64 << 10)
    (tmp_path / "a.digest").write_bytes(made.data)
    report = diagnose([str(tmp_path / "a.digest")])
    assert culprits(report) == [1]
    assert made.lines and f"{made.lines:,} lines" in from_digest(report)
    evidence = read([str(tmp_path / "a.digest")])
    assert {line.rank for line in evidence.said if line.text == "last words"} == {0, 1, 2}
    if made.calls:
        assert f"the {made.calls:,} oldest calls" in from_digest(report)
        assert all(dump.overflowed for dump in evidence.dumps)


def test_gaps_and_hosts_travel_too(run: Path, tmp_path: Path) -> None:
    (run / "comm_lib_trace_rank_7").write_bytes(b"\x80\x02cos\nsystem\n.")
    evidence = read([str(digest(tmp_path / "a.digest", run))])
    assert any("os.system" in gap.why for gap in evidence.gaps)


@given(st.integers(0, 10**9), st.binary(min_size=1, max_size=12), st.booleans())
def test_a_damaged_digest_is_a_gap(at: int, junk: bytes, cut: bool) -> None:
    whole = joined([rings.dumped(n)[:200] for n in range(3)])
    at = 19 + at % (len(whole) - 19)
    data = whole[:at] if cut else whole[:at] + junk + whole[at + len(junk) :]
    try:
        assert isinstance(split(data), list)
    except Damaged as error:
        assert str(error)


@given(st.binary(max_size=200))
def test_a_damaged_block_is_a_gap(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("junk") / "a.digest"
    path.write_bytes(joined([junk]))
    evidence = read([str(path)])
    assert any("cannot be read" in gap.why for gap in evidence.gaps)
    assert not evidence.sources


def test_blocks_damaged_anywhere_never_raise(run: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    blocks = split(digest(tmp_path / "a.digest", run).read_bytes())
    for _ in range(300):
        block = bytearray(rng.choice(blocks))
        for _ in range(rng.randint(1, 4)):
            block[rng.randrange(len(block))] = rng.randrange(256)
        (tmp_path / "b.digest").write_bytes(joined([bytes(block), *rng.sample(blocks, 4)]))
        read([str(tmp_path / "b.digest")])


def test_another_version_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "a.digest").write_bytes(b"WHICHRANK DIGEST 7\n...")
    assert any("another version" in gap.why for gap in diagnose([str(tmp_path / "a.digest")]).gaps)


def test_a_bomb_is_not_unpacked() -> None:
    import zlib

    with pytest.raises(Damaged, match="proportion"):
        split(b"WHICHRANK DIGEST 1\n" + zlib.compress(b"\xdd\xff\xff\xff\xff" + bytes(1 << 28), 9))


def test_the_host_is_where_it_was_made(run: Path) -> None:
    assert socket.gethostname().partition(".")[0].encode() in split(reduce([str(run)]).data)[0]
