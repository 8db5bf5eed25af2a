"""Folders of several runs' logs: told apart, diagnosed one by one, and what they share said with no database."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from whichrank import __main__ as program
from whichrank.history.answer import SORTS, why
from whichrank.history.kept import history_of
from whichrank.history.runs import reports

RUNS = Path(__file__).parent / "runs"
KINDS = sorted(path.name for path in RUNS.iterdir() if path.is_dir())


def truth(kind: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((RUNS / kind / "truth.json").read_text(encoding="utf-8"))
    return found


def evidence(kind: str, folder: Path) -> Path:
    """The logs under a neutral name, without the truth."""
    to = folder / "logs"
    shutil.copytree(RUNS / kind, to, ignore=shutil.ignore_patterns("truth.json"))
    return to


@pytest.mark.parametrize("kind", KINDS)
def test_six_runs_in_a_folder(kind: str, tmp_path: Path) -> None:
    found = reports([str(evidence(kind, tmp_path))])
    answer = why(history_of(found))

    assert len(found) == 6 and answer.findings.incidents == 6
    best = answer.patterns[0] if answer.patterns else None
    assert (best.kind if best else "undecided") in truth(kind)["answer"]  # type: ignore[operator]
    name = truth(kind)["name"]
    assert name is None or (best is not None and str(name) in best.name)
    assert not (best and best.confounded)


@pytest.mark.parametrize("kind", KINDS)
def test_the_runs_as_arguments_have_the_same_answer_as_their_folder(kind: str, tmp_path: Path) -> None:
    folder = evidence(kind, tmp_path)
    together = why(history_of(reports([str(folder)])))
    apart = why(history_of(reports(sorted(str(path) for path in folder.iterdir()))))

    assert (together.says, together.action) == (apart.says, apart.action)


@pytest.mark.parametrize("kind", ["one-node", "nothing"])
def test_the_command_line(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(evidence(kind, tmp_path))
    code = program.run(["history", "why", folder])
    text = capsys.readouterr().out
    assert code == program.run(["history", "why", folder, "--json"]) == (1 if kind == "one-node" else 0)
    data = json.loads(capsys.readouterr().out)

    assert data["answer"] in truth(kind)["answer"]  # type: ignore[operator]
    assert data["sort"] == SORTS.get(data["answer"], "undecided")
    assert len(data["heat"]["incidents"]) == 6
    assert ("hx07" in text.splitlines()[2]) is (kind == "one-node")
    assert all(len(line) <= 80 or line.lstrip().startswith("$") for line in text.splitlines())


def test_diagnose_on_the_folder_says_what_they_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(evidence("one-sample", tmp_path))
    assert program.run(["diagnose", folder, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)

    assert len(data["incidents"]) == 6
    assert data["shared"]["sort"] == "data" and "clip_00417733" in data["shared"]["says"]

    assert program.run(["diagnose", folder]) == 1
    text = capsys.readouterr().out
    assert "what they share" in text and "clip_00417733" in text
    assert program.run(["diagnose", folder, "--redact", "--json"]) == 1
    assert "clip_00417733" not in json.dumps(
        {k: v for k, v in json.loads(capsys.readouterr().out).items() if k in ("shared", "circumstances")}
    )


def test_kept_run_by_run_it_is_the_same_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sqlalchemy")
    folder, url = evidence("storage-window", tmp_path), str(tmp_path / "kept.db")
    for run in sorted(folder.iterdir()):
        program.run(["diagnose", str(run), "--history", url])
        program.run(["diagnose", str(run), "--history", url])  # twice: it is kept once
    capsys.readouterr()

    assert program.run(["history", "why", "--history", url, "--json"]) == 1
    kept = json.loads(capsys.readouterr().out)
    program.run(["history", "why", str(folder), "--json"])
    read = json.loads(capsys.readouterr().out)
    assert (kept["answer"], kept["name"], kept["incidents"], kept["runs"]) == (read["answer"], read["name"], 6, 6)

    assert program.run(["history", "--history", url, "--cause", "slow_storage"]) == 0
    assert "slow_storage" in capsys.readouterr().out
    assert program.run(["history", "export", str(tmp_path / "t.csv"), "--history", url]) == 0
    assert len((tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()) == 7


def test_history_as_a_flag_before_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("WHICHRANK_HISTORY", raising=False)
    run = sorted(evidence("one-node", tmp_path).iterdir())[0]

    assert program.run(["diagnose", "--history", str(run)]) == 1
    assert "1 new" in capsys.readouterr().err
    assert program.run(["history", "--json"]) == 0
    (kept,) = json.loads(capsys.readouterr().out)["incidents"]
    assert (kept["cause"], kept["host"]) == ("gpu_fault", "hx07")


@pytest.mark.parametrize(
    "args",
    [
        ["history", "why", "no/such/folder"],
        ["history", "why", "--history", "none.db"],
        ["history", "list", "--history", "none.db"],
        ["history", "why", "a", "--history", "b.db"],
        ["history", "export", "x.csv", "--history", "none.db"],
        ["history", "nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_2(args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert program.run(args) == 2
    assert list(tmp_path.iterdir()) == []


def test_nodes_of_one_run_are_not_runs(tmp_path: Path) -> None:
    """A folder for each node, the same moments: one run."""
    one = evidence("one-node", tmp_path) / "run1"

    assert len(reports([str(one)])) == 1


def test_kernel_logs_beside_the_runs_go_with_the_run_that_they_fit(tmp_path: Path) -> None:
    folder = evidence("one-node", tmp_path)
    aside = folder / "dmesg"
    aside.mkdir()
    for run in sorted(folder.glob("run*")):
        for log in run.glob("*.dmesg.txt"):
            log.rename(aside / f"{log.name.split('.')[0]}.{run.name}.dmesg.txt")
    found = reports([str(folder)])

    assert [report.verdicts[0].cause for report in found] == [
        "gpu_fault",
        "undecided",
        "gpu_fault",
        "gpu_fault",
        "host_oom",
        "undecided",
    ]


def test_without_the_extra_packages_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] == "sqlalchemy" or name.startswith("whichrank.history.sc")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    assert program.run(["history", "--history", str(tmp_path / "x.db")]) == 2
    assert "pip install 'whichrank[history]'" in capsys.readouterr().err
    assert program.run(["history", "why", str(evidence("nothing", tmp_path))]) == 0  # logs need none of it
    capsys.readouterr()
    assert (
        program.run(["diagnose", str(evidence("one-node", tmp_path / "two")), "--history", str(tmp_path / "x.db")]) == 2
    )
    said = capsys.readouterr()
    assert "incident" in said.out and "not kept: keeping a history needs more packages" in said.err


def renamed(run: Path, names: dict[str, str]) -> None:
    """The run under other names of its hosts: in its lines, its files and folders."""
    for path in sorted(run.rglob("*"), reverse=True):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            for old, new in names.items():
                text = text.replace(old, new)
            path.write_text(text, encoding="utf-8")
        new_name = path.name
        for old, new in names.items():
            new_name = new_name.replace(old, new)
        if new_name != path.name:
            path.rename(path.with_name(new_name))


def test_one_node_under_its_short_and_its_full_name_is_one(tmp_path: Path) -> None:
    folder = evidence("one-node", tmp_path)
    for run in ("run2", "run4", "run5"):
        for path in (folder / run).rglob("*.log"):
            path.write_text(
                path.read_text(encoding="utf-8").replace(" on hx07,", " on HX07.cluster.example.org,"), encoding="utf-8"
            )
    answer = why(history_of(reports([str(folder)])))

    assert [(one.name, one.hits) for one in answer.patterns] == [("hx07", 6)]


def test_a_pod_is_the_node_that_it_ran_on(tmp_path: Path) -> None:
    """The same pod names on other nodes in each run: the tables of pods tell which."""
    folder = evidence("one-node", tmp_path)
    for number, run in enumerate(sorted(folder.iterdir())):
        hosts = sorted(path.name for path in run.iterdir() if path.is_dir())
        order = sorted(hosts, key=lambda host: min(int(path.name[4:6]) for path in (run / host).glob("rank*.log")))
        pods = {host: f"llm-worker-{place}" for place, host in enumerate(order)}
        for log in run.glob("*.dmesg.txt"):
            log.rename(log.with_name(f"kernel_{log.name}"))
        for host in order:
            renamed(run / host, {host: pods[host]})
            (run / host).rename(run / pods[host])
        table = [
            "NAME           READY   STATUS   RESTARTS   AGE   IP           NODE   NOMINATED NODE   READINESS GATES"
        ]
        table += [
            f"{pod}   0/1     Error    0          3h    10.2.{number}.{place}    {host}   <none>           <none>"
            for place, (host, pod) in enumerate(pods.items())
        ]
        (run / "pods.txt").write_text("\n".join(table) + "\n", encoding="utf-8")
    answer = why(history_of(reports([str(folder)])))

    assert [one.name for one in answer.patterns] == ["hx07"]
