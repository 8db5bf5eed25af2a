"""Large texts are skimmed: the same facts as if every line had been taken apart, in bounded memory."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence

from whichrank.diagnosis import diagnose
from whichrank.evidence import Evidence, fold, parallel, read_blocks, read_piece, readers, scanner, survey
from whichrank.evidence.anchors import Compiled, Words, lines_with
from whichrank.evidence.scan import Keep
from whichrank.evidence.skim import LONG, Survey
from whichrank.facts import Fact, Identity, Source, Spot
from whichrank.report import json_report

SHARE = 4096


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.evidence.skim.BLOCK", 20_000)


CASES = Path(__file__).parents[1] / "cases"
PUBLIC = sorted(path.parent.name for path in (CASES / "public").glob("*/truth.json"))
TRACEBACK = (
    "Traceback (most recent call last):",
    *(
        f'  File "/home/u/job/layer_{depth}.py", line {depth + 3}, in forward\n    x = self.inner(x)'
        for depth in range(60)
    ),
    "ValueError: could not convert string to float: 'n/a'",
)
OOM = "[41231.250000] Out of memory: Killed process 4242 (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB"


def steps(rank: int, count: int, *, merged: bool = False) -> list[str]:
    label = f"[rank{rank}]: " if merged else ""
    return [
        f"{label}2026-03-02 {9 + step // 3600:02d}:{step // 60 % 60:02d}:{step % 60:02d} INFO step {step} loss {9 / step:.3f}"
        for step in range(1, count + 1)
    ]


def watchdog(rank: int) -> str:
    return (
        f"[rank{rank}]:[E0302 10:30:00.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
        f"600012 milliseconds before timing out."
    )


def blocks_of(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def skimmed(lines: Sequence[str], block: int = 3000, name: str = "train.log") -> Evidence:
    evidence = Evidence()
    read_blocks(name, blocks_of(("\n".join(lines) + "\n").encode(), block), evidence, SHARE)
    return evidence


def whole(lines: Sequence[str], name: str = "train.log") -> Evidence:
    evidence = Evidence()
    read_piece(name, ("\n".join(lines) + "\n").encode(), evidence)
    return evidence


def facts(evidence: Evidence) -> list[tuple[object, ...]]:
    return [(fact.spot.line, fact.at_ns, *essence(fact)) for fact in evidence.facts]


@given(at=st.integers(0, 2000), block=st.integers(200, 50_000), seed=st.integers(0, 99))
def test_what_stands_anywhere_in_a_large_text_is_found(at: int, block: int, seed: int) -> None:
    lines = steps(0, 2000)
    random.Random(seed).shuffle(extra := [watchdog(1), OOM, "\n".join(TRACEBACK)])
    lines[at:at] = "\n".join(extra).split("\n")

    found, expected = skimmed(lines, block), whole(lines)

    assert facts(found) == facts(expected)
    assert {fact.kind for fact in found.facts} >= {"timeout", "oom_kill", "exception"}
    assert found.sources[0].lines == expected.sources[0].lines == len(lines)
    assert len(found.said) < len(expected.said) / 4


@pytest.mark.many
@pytest.mark.parametrize("case", PUBLIC)
def test_cases_in_the_middle_of_much_talk(case: str, tmp_path: Path) -> None:
    """Real evidence, far from both ends of a text that is skimmed: the same facts."""
    talk = steps(0, 300)
    for path in sorted((CASES / "public" / case).rglob("*")):
        text = path.read_bytes() if path.is_file() and path.name != "truth.json" else b""
        lines = text.decode("utf-8", "replace").split("\n")
        if not text or b"\0" in text or text[:1] in b"{[" or any(len(line) > LONG for line in lines):
            continue
        if len(lines) > 150:  # the end is whole anyway, and blocks are followed for some hundred lines only
            lines = lines[:150]
        mixed = [*talk, *lines, *talk]

        found, expected = skimmed(mixed, 5000, "console.log"), whole(mixed, "console.log")

        missing = set(facts(expected)) - set(facts(found))
        assert not missing, (
            path.name,
            sorted(missing, key=str)[:3],
            sorted(set(facts(found)) - set(facts(expected)), key=str)[:3],
        )


def test_the_last_words_of_a_rank_that_falls_silent_are_kept() -> None:
    lines = [line for pair in zip(steps(0, 900, merged=True), steps(1, 900, merged=True), strict=True) for line in pair]
    lines += ["[rank1]: 2026-03-02 09:15:01 INFO opening shard 17"]
    lines += [line.replace("09:", "10:") for line in steps(0, 3000, merged=True)]

    found = skimmed(lines)

    last = [line for line in found.said if line.rank == 1][-1]
    assert last.text.endswith("opening shard 17") and last.spot.line == 1801


def test_a_line_without_an_end_costs_no_memory_and_hides_nothing_after_it() -> None:
    lines = [*steps(0, 50), "x" * (3 * LONG), *steps(0, 50), watchdog(2), *steps(0, 50)]

    found = skimmed(lines, 100_000)

    assert [fact.kind for fact in found.facts] == ["timeout"]
    assert found.facts[0].spot.line == 102
    assert "very long lines" in found.gaps[0].why


def test_very_many_lines_of_one_kind_are_cut_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.evidence.skim.ALIKE", 200)
    lines = [*steps(0, 200), *(watchdog(3) for _ in range(1000)), *steps(0, 200), watchdog(5)]

    found = skimmed(lines)

    assert 200 <= len(found.facts) < 400 and {fact.who.rank for fact in found.facts} == {3, 5}
    assert any("very many lines like line" in gap.why for gap in found.gaps)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8"])
def test_encodings_and_zeros(encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    text = mark + "\n".join([*steps(0, 900), watchdog(1), *steps(0, 900)]) + "\n"
    data = text.encode(encoding)
    if encoding == "utf-8":
        data = b"\0" * 3000 + data
    evidence = Evidence()

    read_blocks("train.log", blocks_of(data, 7777), evidence, SHARE)

    assert [fact.kind for fact in evidence.facts] == ["timeout"]


def test_the_end_of_a_text_tells_whether_it_was_cut() -> None:
    lines = [*steps(0, 900), watchdog(1)]
    evidence = Evidence()

    read_blocks("train.log", blocks_of("\n".join(lines).encode()[:-20], 4000), evidence, SHARE)

    assert evidence.sources[0].ends_midline and evidence.sources[0].bytes == len("\n".join(lines)) - 20


def test_both_sieves_name_the_same_lines() -> None:
    hyperscan = pytest.importorskip("hyperscan")
    anchors = {anchor.encode() for anchor in scanner().anchors}
    slow, fast = Words(anchors), Compiled(anchors, hyperscan)
    for path in sorted(CASES.rglob("*.log"))[:60]:
        text = path.read_bytes()
        assert lines_with(slow, text) == lines_with(fast, text), path


@given(st.text(alphabet="abcdE: _#.-\n", max_size=300))
def test_the_sieve_of_words_misses_no_anchor(text: str) -> None:
    anchors = [b"ab", b"E: ", b"a_b: c", b" : ", b"#", b"d.d", b"cab-"]

    found = lines_with(Words(anchors), text.encode())

    held = {line: {anchor for anchor in anchors if anchor in line} for line in text.encode().split(b"\n")}
    assert found == {line: here for line, here in held.items() if here}


def _folder(tmp_path: Path, size: int) -> Path:
    spec = importlib.util.spec_from_file_location("folder", Path(__file__).parents[2] / "bench" / "folder.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(tmp_path / "job", size)
    return tmp_path / "job"


def test_workers_change_nothing(tmp_path: Path) -> None:
    folder = str(_folder(tmp_path, 12_000_000))

    alone = json_report.render(diagnose([folder]))
    with ThreadPoolExecutor(2) as threads:
        assert json_report.render(diagnose([folder], workers=threads)) == alone
    assert json_report.render(diagnose([folder], workers=parallel.processes)) == alone

    assert json.loads(alone)["verdicts"][0]["cause"] == "host_oom"
    assert [culprit["rank"] for culprit in json.loads(alone)["verdicts"][0]["culprits"]] == [17]


@pytest.mark.parametrize("learner", [scanner, survey])
def test_threads_learn_each_for_itself(learner: Callable[[], object]) -> None:
    """Ranks say the same at the same time: what one thread has learnt half is no knowledge to another."""
    with ThreadPoolExecutor(1) as other:
        assert other.submit(learner).result() is not learner()
        assert other.submit(learner).result() is other.submit(learner).result()


def test_what_is_forgotten_is_learnt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block in which too many shapes were known has lines of shapes that were known before."""
    monkeypatch.setattr("whichrank.evidence.skim.SHAPES", 50)
    learnt = Survey(scanner())
    line = watchdog(3).encode()
    assert len(learnt.wanted(line + b"\nstep\n")) == 1
    letters = (bytes(pair) for pair in itertools.product(b"abcdefgh", repeat=2))
    for _ in range(6):
        many = b"\n".join(b"loss of " + next(letters) for _ in range(10))
        assert [index for index, _ in learnt.wanted(many + b"\n" + line)] == [10]


def _killed(number: int) -> int:
    import multiprocessing
    import os
    import signal

    if number == 3 and multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_what_a_killed_worker_left_is_done_here() -> None:
    assert list(parallel.each(_killed, range(10), parallel.processes)) == list(range(10))


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """Twice the size, the same memory: measured in a process of its own, which ru_maxrss is not: that counts its parent's."""
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc")
    script = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from whichrank.evidence import read\n"
        "read(sys.argv[1:])\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    used = []
    for size in (40_000_000, 120_000_000):
        folder = _folder(tmp_path / str(size), size)
        one = tmp_path / f"{size}.log"
        with one.open("wb") as out:
            out.write(b"[rank0]: a label, and no JSON\n")
            for path in sorted(folder.glob("rank*")):
                out.write(path.read_bytes())
        done = subprocess.run([sys.executable, "-c", script, str(one)], capture_output=True, text=True, check=True)
        used.append(int(done.stdout))
    assert used[1] < 1.25 * used[0] and used[1] < 250_000, used


LURES = ("Watchdog caught collective operation timeout", "rank", "pid", "host", "Error:", "Killed process", "Xid")


def lured(count: int, seed: int) -> list[str]:
    """Every line with words of its own and with what readers look for; some of them are what they look for."""
    rng = random.Random(seed)

    def word() -> str:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9)))

    lines = []
    for _ in range(count):
        words = [word() for _ in range(rng.randint(1, 6))]
        lure = rng.choice(
            (*LURES, f"rank {rng.randrange(8)} pid {rng.randrange(99999)}", f"{word().title()}Error: {word()}")
        )
        words.insert(rng.choice((0, 1)), lure)
        lines.append(f"[rank{rng.randrange(8)}]: {' '.join(words)}")
    return lines


@pytest.mark.many
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_kept_of_lines_that_all_look_notable_is_bounded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.evidence.skim.MOST", 3000)
    monkeypatch.setattr("whichrank.evidence.scan.SHAPELESS", 500)
    monkeypatch.setattr("whichrank.evidence.ALL", Keep(facts=600))
    monkeypatch.setattr("whichrank.evidence._kept", lambda share: Keep(4000, 1000, 600))
    kept = []
    for count in (8000, 24000):
        lines = lured(count, seed)
        lines[count // 2 : count // 2] = [watchdog(rank) for rank in range(9)]
        found = skimmed(lines, 50_000)
        kept.append((len(found.facts), len(found.said)))

        timeouts = {fact.rank for fact in found.facts if fact.kind == "timeout"}
        assert timeouts == set(range(9)), "the first of each speaker stays"
        assert any("left out" in gap.why for gap in found.gaps) and any(
            "very many lines" in gap.why for gap in found.gaps
        )

    assert kept[1][0] <= 600 and kept[1][1] <= 1000
    assert kept[1][0] <= 1.2 * kept[0][0] and kept[1][1] <= 1.2 * kept[0][1]


def test_of_a_kind_said_over_and_over_the_first_and_the_last_are_kept() -> None:
    source = Source("train.log")
    timeouts = [Fact("timeout", Spot(source, line, ""), who=Identity(rank=line % 4)) for line in range(4000)]
    rare = Fact("oom_kill", Spot(source, 2000, ""))
    facts_here = [*timeouts[:2000], rare, *timeouts[2000:]]

    kept, left_out = fold.fold(facts_here, 100)

    assert rare in kept and len(kept) <= 100
    assert kept[:4] == timeouts[:4] and kept[-4:] == timeouts[-4:]
    assert left_out == {"timeout": len(facts_here) - len(kept)}
    assert kept == [fact for fact in facts_here if fact in kept], "in their order"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 3)), max_size=200), st.integers(1, 120)
)
def test_folding_keeps_the_ends_of_every_kind(found: list[tuple[str, int, int]], most: int) -> None:
    source = Source("x.log")
    facts_here = [
        Fact(kind, Spot(source, line, ""), who=Identity(rank=rank), values={"name": f"n{name}"})
        for line, (kind, rank, name) in enumerate(found)
    ]

    kept, left_out = fold.fold(facts_here, most)

    assert len(kept) + sum(left_out.values()) == len(facts_here)
    for kind in "abc":
        alike = [fact for fact in facts_here if fact.kind == kind]
        assert not alike or (alike[0] in kept and alike[-1] in kept)
    assert len(kept) <= max(most, 6)


def test_readers_have_no_anchor_that_every_line_holds() -> None:
    """An anchor in ordinary lines makes each of them look notable."""
    ordinary = "\n".join(steps(0, 50)).encode()
    anchors = [anchor for reader in readers() for line in reader.lines for anchor in line.anchors]

    assert not lines_with(Words(anchor.encode() for anchor in anchors), ordinary)
