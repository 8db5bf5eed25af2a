"""Parts of several nodes in a history: one run where they belong together, several where the id comes again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.history import rundirs
from whichrank.history.incident import Incident, Run
from whichrank.history.node import TOGETHER, Node, Seat, same_id
from whichrank.history.store import Store
from whichrank.history.why import find
from whichrank.watch import ids

pytest.importorskip("sqlalchemy")
T = 1.7e9


def node(host: str, began: float = 0.0, hours: float = 1.0, first: int = 0, **more: Any) -> Node:
    seats = tuple(Seat(first + local, 0, local, f"GPU-{host}-{local}") for local in range(2))
    own: dict[str, Any] = {
        "outcome": "healthy",
        "exit_code": 0,
        "world_size": 4,
        "seats": seats,
        "command": "torchrun t.py",
    }
    own |= more
    return Node(f"{host}-{began}", "s" * 32, "slurm 88", host, T + began, T + began + 3600 * hours, **own)


def kept(url: str, *nodes: Node) -> dict[str, set[str]]:
    """The hosts of each run."""
    with Store(url) as store:
        for one in nodes:
            store.keep_node(one)
        return {run.id: {host for host, _ in run.placement} for run in store.runs()}


def test_nodes_of_one_id_are_one_run_with_the_hours_and_ranks_of_all(url: str) -> None:
    with Store(url) as store:
        for one in (node("b", 30, 2.0, first=2), node("a")):
            store.keep_node(one)
        assert len(store.runs()) == 1
        run = store.runs()[0]
        assert run.placement == (("a", 2), ("b", 2)) and run.world_size == 4 and run.label == "slurm 88"
        assert (run.began, run.ended) == (T, T + 30 + 7200)
        assert {one.host: one for _, one in store.nodes()} == {"a": node("a"), "b": node("b", 30, 2.0, first=2)}


def test_an_end_replaces_the_start_and_keeping_it_again_changes_nothing(url: str) -> None:
    start = node("a", hours=0.01, outcome="open", exit_code=None, seats=())
    with Store(url) as store:
        store.keep_node(start)
        assert store.runs()[0].placement == (("a", 1),)  # no rank is known: it took part all the same
        before = store.runs()[0].id
        for _ in range(2):
            store.keep_node(node("a"))
        assert [(run.id, run.hours, run.placement) for run in store.runs()] == [(before, 1.0, (("a", 2),))]


def test_an_older_copy_of_it_takes_nothing_back(url: str) -> None:
    older = node("a", hours=0.5, outcome="open", exit_code=None)
    with Store(url) as store:
        store.keep_node(node("a"))
        assert store.keep_node(older, [Incident("x", cause="slow_data", rank=0)]) == 0
        store.keep_node(replace(node("a"), outcome="open"))
        assert [one for _, one in store.nodes()] == [node("a")] and store.incidents() == []


def test_a_host_that_starts_again_is_another_run_and_the_others_join_it(url: str) -> None:
    again = 3700.0
    runs = kept(url, node("a"), node("b", 20, first=2), node("a", again), node("b", again + 9, first=2))
    assert sorted(runs.values(), key=sorted) == [{"a", "b"}, {"a", "b"}]


def test_the_same_id_days_later_on_another_host_is_another_run(url: str) -> None:
    assert len(kept(url, node("a"), node("c", TOGETHER + 86400))) == 2


def test_a_node_that_comes_while_the_run_goes_on_belongs_to_it(url: str) -> None:
    assert list(kept(url, node("a", hours=9), node("c", TOGETHER + 7200, first=2)).values()) == [{"a", "c"}]


def test_an_id_that_only_the_ranks_tell_moves_the_part_to_the_others_run(url: str) -> None:
    early = replace(node("b", 10, first=2), shared="own")
    runs = kept(url, early, node("a"), replace(early, shared="s" * 32))
    assert list(runs.values()) == [{"a", "b"}]


def test_the_surer_of_two_nodes_tells_the_incident_whoever_comes_last(url: str) -> None:
    vague = Incident("x", cause="undecided", confidence=0.3)
    named = Incident("x", cause="gpu_fault", family="gpu_fault", grade="proven", confidence=0.99, rank=3)
    for order in ((vague, named), (named, vague)):
        with Store(url) as store:
            for one, said in zip((node("a"), node("b", first=2)), order, strict=True):
                store.keep_node(one, [said], whole=False)
            (found,) = store.incidents()
            assert (found.cause, found.rank) == ("gpu_fault", 3)
            # the rank's seat tells where and on which GPU
            assert (found.host, found.local_rank, found.gpu) == ("b", 1, "GPU-b-1")
            assert found.run == store.runs()[0].id


@pytest.mark.parametrize(("others", "more", "named"), [(False, 0, False), (True, 0, True), (True, 90, False)])
def test_healthy_runs_accuse_a_node_and_acquit_it(tmp_path: Path, others: bool, more: int, named: bool) -> None:
    """Node h0 fails 8 times, three others once each: too often only where they ran as much, and not if it ran far more."""
    said = Incident("x", cause="gpu_fault", family="gpu_fault", grade="likely", confidence=0.9)
    runs = [(f"h{host}", host == 0 or (host < 4 and again == 0)) for host in range(12) for again in range(8)]
    runs = [run for run in runs if others or run[1]] + [("h0", False)] * more
    with Store(str(tmp_path / "h.db")) as store:
        for number, (host, bad) in enumerate(runs):
            one = node(host, 90000.0 * number, 10.0, world_size=2, outcome="incident" if bad else "healthy")
            store.keep_node(replace(one, shared=str(number)), [replace(said, host=host)] if bad else [])
        patterns = find(store.history()).patterns
    assert [(one.kind, one.name) for one in patterns] == ([("node", "h0")] if named else [])


def part(one: Node) -> rundirs.Part:
    return rundirs.Part(f"/runs/{one.name}", one, None, one.host)


def test_a_diagnosis_of_run_directories_goes_with_their_run_and_other_logs_with_theirs() -> None:
    a, b = part(node("a")), part(node("b", 20, first=2, outcome="failed"))
    told = Run("d", "", T + 5, T + 900, (("a", 2), ("b", 2)), 4)
    other = Run("o", "", T - 9e5, T - 8e5, (("a", 2),), 2)
    said, else_ = Incident("d", cause="gpu_fault", rank=3), Incident("o", cause="killed", rank=0)
    runs, rest, parts = rundirs.sorted_out([told, other], [said, else_], [a, b])
    assert (runs, rest) == ([other], [else_])
    assert parts == [(a.node, []), (replace(b.node, outcome="incident"), [said])]


@pytest.mark.parametrize(
    ("code", "signals", "incidents", "outcome"),
    [
        (0, [], [], "healthy"),
        (0, [], [Incident("")], "healthy"),  # nothing is known of it, and the job ended well
        (0, [], [Incident("", cause="killed", rank=1)], "incident"),  # an attempt failed, the next one got through
        (1, [], [Incident("")], "incident"),
        (1, [], [], "failed"),
        (143, [15], [Incident("")], "stopped"),
        (143, [15], [Incident("", cause="slow_data", rank=1)], "incident"),
        (None, [], [Incident("")], "stopped"),
        ("open", [], None, "open"),
    ],
)
def test_how_a_part_ended(
    tmp_path: Path, code: object, signals: list[int], incidents: list[Incident] | None, outcome: str
) -> None:
    told: dict[str, Any] = {"whichrank_run": 1, "id": "r", "host": "N1.example.org", "started": {"wall_ns": 10**18}}
    if code != "open":
        told |= {"ended": {"wall_ns": 10**18 + 10**9}, "exit_code": code}
    (tmp_path / "run.json").write_text(json.dumps(told))
    lines = [json.dumps({"kind": "signal", "wall_ns": 1, "mono_ns": 1, "signal": number}) for number in signals]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    if incidents is not None:
        (tmp_path / "incidents.json").write_bytes(rundirs.written(incidents))
    (found,) = rundirs.found([str(tmp_path)])
    assert (found.node.outcome, found.node.host) == (outcome, "n1")
    kept_with = rundirs.kept_of(found)[1]
    assert kept_with == (incidents if outcome == "incident" else [])


@given(st.binary(max_size=300), st.integers(0, 400), st.sampled_from(rundirs.FILES))
def test_any_bytes_in_its_files_raise_nothing(data: bytes, at: int, name: str) -> None:
    files = {
        "run.json": b'{"whichrank_run":1,"started":{"wall_ns":1000000000000000000},"ids":{"rdzv":"7"},"exit_code":0}',
        "events.jsonl": b'{"kind":"rank","wall_ns":5,"mono_ns":1,"rank":0,"pid":7}\n{"kind":"gpus","of":{"7":"GPU-1"}}\n',
        rundirs.INCIDENTS: b'[{"run":"x","cause":"killed","rank":0}]',
    }
    files[name] = files[name][:at] + data
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            (Path(folder) / file).write_bytes(content)
        for part_ in rundirs.found([folder]):
            rundirs.kept_of(part_)


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from test_parts_of_nodes import node
from whichrank.history.store import Store
print("ready", flush=True); sys.stdin.readline()
for number in range(20):
    with Store(sys.argv[1]) as store:
        store.keep_node(node(sys.argv[2], 90000.0 * number, first=2 * int(sys.argv[2][1:])))
"""


def test_nodes_that_write_at_once_make_one_run_each_time(url: str) -> None:
    Store(url).close()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [sys.executable, "-c", WRITER, url]
    writers = [
        subprocess.Popen([*words, host, str(Path(__file__).parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        for host in ("n0", "n1")
    ]  # fmt: skip
    for one in writers:
        assert one.stdout is not None and one.stdout.readline() == b"ready\n"
    for one in writers:
        one.communicate(b"\n", timeout=120)
        assert one.returncode == 0
    with Store(url) as store:
        assert [run.placement for run in store.runs()] == [(("n0", 2), ("n1", 2))] * 20


def test_a_schema_without_nodes_gets_them_and_keeps_what_it_had(url: str) -> None:
    from whichrank.history import schema
    from whichrank.history.store import _engine

    old = _engine(url, create=True)
    with old.begin() as connection:
        schema.migrate(connection, upto=3)
        row = {"id": "r", "label": "old", "began": 1.0, "ended": 2.0, "world_size": 8, "placement": b"", "dealt": 0}
        connection.execute(schema.RUNS.insert().values(row))
    old.dispose()
    runs = kept(url, node("a"))
    assert len(runs) == 2 and runs["r"] == set()


@pytest.mark.parametrize(
    ("commands", "envs", "same"),
    [
        (("torchrun --rdzv-id=7 --rdzv-endpoint=h:1 t.py",) * 2, ({}, {}), True),
        (("torchrun --rdzv-id=7 --rdzv-endpoint=h:1 t.py", "torchrun --rdzv_id 7 --rdzv_endpoint h:1 t.py"), ({}, {}), True),
        (("torchrun --rdzv-id=7 --rdzv-endpoint=h:1 t.py", "torchrun --rdzv-id=8 --rdzv-endpoint=h:1 t.py"), ({}, {}), False),
        # an id out of a tutorial, in two clusters
        (("torchrun --rdzv-id=100 --rdzv-endpoint=h:1 t.py", "torchrun --rdzv-id=100 --rdzv-endpoint=i:1 t.py"), ({}, {}), False),
        (("torchrun t.py",) * 2, ({"SLURM_JOB_ID": "8"}, {"SLURM_JOB_ID": "8"}), True),
        (("torchrun t.py",) * 2, ({"SLURM_JOB_ID": "8"}, {"SLURM_JOB_ID": "8", "SLURM_RESTART_COUNT": "1"}), False),
        (("torchrun --node-rank 0 --master-addr h t.py", "torchrun --node-rank 1 --master-addr h t.py"), ({}, {}), True),
        (("torchrun --master-addr localhost t.py",) * 2, ({}, {}), False),
        (("torchrun --standalone t.py",) * 2, ({}, {}), False),
        (("torchrun t.py",) * 2, ({"TORCHELASTIC_RUN_ID": "j"}, {"TORCHELASTIC_RUN_ID": "j"}), True),
    ],
)  # fmt: skip
def test_what_nodes_have_in_common(commands: tuple[str, str], envs: tuple[dict[str, str], ...], same: bool) -> None:
    told = [ids.told(command.split(), env) for command, env in zip(commands, envs, strict=True)]
    assert (same_id(told[0], None, "a") == same_id(told[1], None, "b")) is same
    shell = [ids.told(["bash", "-c", command], env) for command, env in zip(commands, envs, strict=True)]
    assert shell == told


def test_the_id_that_only_rings_know(tmp_path: Path) -> None:
    told = ids.told(["bash", "launch.sh"], {})
    assert same_id(told, "job-5", "a") == same_id(told, "job-5", "b") != same_id(told, "none", "a")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"whichrank_run":1}', b'{"whichrank_run":1,"started":7}', b"\xff\xfe"]
)
def test_a_damaged_run_json_is_no_run(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run.json").write_bytes(data)
    assert rundirs.read(tmp_path) is None and rundirs.found([str(tmp_path)]) == []


def test_odd_things_in_a_run_directory_are_passed_by(tmp_path: Path) -> None:
    told = {"whichrank_run": 1, "started": {"wall_ns": 10**18}, "ids": 7, "command": {}, "host": 3, "exit_code": "x"}
    (tmp_path / "run.json").write_text(json.dumps({**told, "ended": []}))
    (tmp_path / "incidents.json").write_text('[{"run": 5}]')
    events = b'{"kind":"rank","rank":-1}\n{"kind":"gpus","of":[]}\n{"kind":"rank","rank":"x"}\n[]\n{"ki'
    (tmp_path / "events.jsonl").write_bytes(events)
    (part,) = rundirs.found([str(tmp_path)])
    assert (part.node.outcome, part.node.seats, part.incidents) == ("open", (), None)
    assert part.node.ended == part.node.began == 1e9
