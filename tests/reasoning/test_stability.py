"""The same evidence, wrapped otherwise, gets the same answer."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from incident import LAYOUTS, Incident, core, named, told

from whichrank.diagnosis import diagnose
from whichrank.model import Report


def silent(job: Incident, end: float, odd: int) -> None:
    job.time_out(end + 602, seq=131, but=[odd])


def raised(job: Incident, end: float, odd: int) -> None:
    job.crash(end + 1, odd)
    job.time_out(end + 602, seq=131, but=[odd])


def killed(job: Incident, end: float, odd: int) -> None:
    job.killed(end + 2, odd)
    job.time_out(end + 602, seq=131, ranks=[rank for rank in job.ranks if job.host(rank) != job.host(odd)])


def oom(job: Incident, end: float, odd: int) -> None:
    job.oom(end + 1, job.host(odd), job.pid(odd))
    job.time_out(end + 602, seq=131, but=[odd])


def other_size(job: Incident, end: float, odd: int) -> None:
    job.time_out(end + 602, seq=131, numel=65536, but=[odd])
    job.time_out(end + 603, seq=131, numel=65408, ranks=[odd])


def everyone(job: Incident, end: float, odd: int) -> None:
    job.time_out(end + 602, seq=131, first=odd)


def well(job: Incident, end: float, odd: int) -> None:
    job.finishes(end + 5)


STORIES = (silent, raised, killed, oom, other_size, everyone, well)
Story = Callable[[Incident, float, int], None]
every_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
every_layout = pytest.mark.parametrize("layout", LAYOUTS)
few = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)


def tell(story: Story, layout: str, odd: int = 5, **more: object) -> Incident:
    job = Incident(layout=layout, **more)  # type: ignore[arg-type]
    job.init()
    story(job, job.steps(100, 130), odd)
    return job


@cache
def answer(story: Story, layout: str, odd: int = 5, **more: object) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return tell(story, layout, odd, **more).report(Path(folder))


@every_story
@every_layout
def test_order_of_arguments(layout: str, story: Story, tmp_path: Path) -> None:
    paths = [str(path) for path in tell(story, layout).write(tmp_path)]
    usual = core(diagnose(paths))

    for seed in range(3):
        random.Random(seed).shuffle(paths)
        assert core(diagnose(paths)) == usual


@every_story
@every_layout
def test_a_folder_or_its_files(layout: str, story: Story, tmp_path: Path) -> None:
    job = tell(story, layout)
    paths = [str(path) for path in job.write(tmp_path)]

    assert core(diagnose([str(tmp_path / job.folder)])) == core(diagnose(paths))


@every_story
@every_layout
def test_the_same_file_twice(layout: str, story: Story, tmp_path: Path) -> None:
    job = tell(story, layout)
    paths = [str(path) for path in job.write(tmp_path)]

    assert core(diagnose([*paths, *paths])) == core(diagnose(paths))


@every_story
def test_twice_the_same_report(story: Story, tmp_path: Path) -> None:
    job = tell(story, "per-rank")
    job.write(tmp_path)

    assert diagnose([str(tmp_path / job.folder)]) == diagnose([str(tmp_path / job.folder)])


UNRELATED = {
    "README.md": b"# Training\n\nIf the job hangs, look for `Watchdog caught collective operation timeout` and restart it.\nRanks are numbered from 0.\n",
    "model.bin": bytes(range(256)) * 400,
    "empty.log": b"",
    "notes.txt": b"Called the storage team on Monday, they see nothing. Will try again with 4 nodes.\n",
    "plot.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0 L10 10"/></svg>\n',
    "requirements.txt": b"torch==2.7.1\nnumpy==2.1.0\ntransformers==4.52.0\n",
    "data.csv": b"step,loss\n" + b"".join(b"%d,%.3f\n" % (step, 3 - step / 1000) for step in range(60)),
}


@every_story
@pytest.mark.parametrize("name", UNRELATED)
def test_an_unrelated_file_changes_no_verdict(name: str, story: Story, tmp_path: Path) -> None:
    job = tell(story, "per-rank")
    job.write(tmp_path)
    usual = diagnose([str(tmp_path / job.folder)])
    (tmp_path / job.folder / name).write_bytes(UNRELATED[name])

    report = job.sound(diagnose([str(tmp_path / job.folder)]), tmp_path)

    assert core(report) == core(usual), f"{told(usual.verdicts[0])}\n{told(report.verdicts[0])}"


@every_story
def test_carriage_returns_and_a_byte_order_mark(story: Story, tmp_path: Path) -> None:
    job = tell(story, "per-node")
    paths = job.write(tmp_path)
    usual = core(diagnose([str(tmp_path / job.folder)]))
    for path in paths:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    assert core(diagnose([str(tmp_path / job.folder)])) == usual


@every_story
def test_layouts_agree_on_cause_and_ranks(story: Story) -> None:
    answers = {layout: answer(story, layout).verdicts[0] for layout in LAYOUTS}

    assert len({(verdict.cause, tuple(named(verdict))) for verdict in answers.values()}) == 1, {
        layout: told(verdict) for layout, verdict in answers.items()
    }


# --- what is renamed consistently keeps its part ---


@every_story
@few
@given(odd=st.integers(0, 7))
def test_ranks_renamed(story: Story, odd: int) -> None:
    usual, other = answer(story, "per-rank", 5).verdicts[0], answer(story, "per-rank", odd).verdicts[0]

    assert (other.cause, other.grade, other.rank_grade, other.mechanism) == (
        usual.cause,
        usual.grade,
        usual.rank_grade,
        usual.mechanism,
    ), told(other)
    assert named(other) == [odd if rank == 5 else rank for rank in named(usual)], told(other)


@every_story
@few
@given(
    names=st.sampled_from(
        ["gx{:d}", "cn-{:04d}", "ip-10-0-3-{:d}", "trainer-worker-{:d}", "dgx-a{:02d}.cluster.local", "hgx{:02d}"]
    )
)
def test_hosts_renamed(story: Story, names: str) -> None:
    usual, other = answer(story, "per-rank").verdicts[0], answer(story, "per-rank", host_name=names).verdicts[0]

    assert (other.cause, other.grade, named(other), other.rank_grade) == (
        usual.cause,
        usual.grade,
        named(usual),
        usual.rank_grade,
    ), told(other)
    assert other.hosts == tuple(names.format(int(host[-2:])).split(".")[0] for host in usual.hosts), told(other)


@every_story
@few
@given(start=st.datetimes(datetime(2021, 1, 1), datetime(2031, 1, 1)))
def test_times_shifted(story: Story, start: datetime) -> None:
    usual, other = (
        answer(story, "per-rank").verdicts[0],
        answer(story, "per-rank", start=f"{start:%Y-%m-%d %H:%M:%S}").verdicts[0],
    )

    assert (other.cause, other.grade, named(other), other.rank_grade, other.confidence) == (
        usual.cause,
        usual.grade,
        named(usual),
        usual.rank_grade,
        usual.confidence,
    ), f"{start}: {told(other)}"


@every_story
@few
@given(pid=st.integers(300, 4_000_000))
def test_pids_renumbered(story: Story, pid: int) -> None:
    usual, other = answer(story, "merged").verdicts[0], answer(story, "merged", first_pid=pid).verdicts[0]

    assert (other.cause, other.grade, named(other), other.rank_grade) == (
        usual.cause,
        usual.grade,
        named(usual),
        usual.rank_grade,
    ), f"{pid}: {told(other)}"


@every_story
@few
@given(seed=st.integers(0, 10_000))
def test_files_renamed_and_shuffled(story: Story, seed: int) -> None:
    """Files of other names hold the same lines, which themselves say whose they are."""
    with tempfile.TemporaryDirectory() as folder:
        job = tell(story, "per-node")
        usual = core(job.report(Path(folder) / "a"))
        paths = [path for path in job.write(Path(folder) / "b") if path.suffix == ".log"]
        random.Random(seed).shuffle(paths)
        moved = [str(path.rename(path.with_name(f"out-{chr(97 + number)}.log"))) for number, path in enumerate(paths)]
        rest = [str(path) for path in (Path(folder) / "b").rglob("*.txt")]

        assert core(diagnose([*moved, *rest])) == usual
