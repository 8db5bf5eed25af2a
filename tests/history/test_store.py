"""Histories that are kept: in SQLite and in a real PostgreSQL, by several writers, one of them killed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_histories import bad_node

from whichrank.errors import UsageProblem
from whichrank.history.export import export
from whichrank.history.incident import History, Incident, Run
from whichrank.history.store import Store, default_url
from whichrank.history.why import find

sqlalchemy = pytest.importorskip("sqlalchemy")


def run(number: int, who: str = "w") -> Run:
    placement = tuple((f"n{(number + place) % 40:02}", 8) for place in range(4))
    return Run(
        f"{who}-{number:05}", f"job {number}", 1.7e9 + 1000 * number, 1.7e9 + 1000 * number + 7200, placement, 32
    )


def incident(number: int, who: str = "w", cause: str = "network") -> Incident:
    own = run(number, who)
    return Incident(
        own.id, 0, own.ended, cause, cause, "likely", 0.8, 9, own.host_of(9), step=number * 10**6, shard="s-1", shards=40,
        sample="clip 77", service="nfs01", says="Rank 9 was late — 10 min.",
    )  # fmt: skip


WRITER = """
import sys
from test_store import incident, run
from whichrank.history.store import Store
url, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store(url) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        assert store.keep([run(number, who)], [incident(number, who)]) == 1
        print(number, flush=True)
"""


def writer(url: str, who: str, count: int) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, who, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def alone(store: Store) -> None:
    """Wait for a server to be done with the connections of others: what a client asked for before it died may be kept yet."""
    others = "backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()"
    query = sqlalchemy.text(f"SELECT count(*) FROM pg_stat_activity WHERE {others}")
    until = time.monotonic() + 60
    while store.engine.dialect.name == "postgresql":
        with store.engine.connect() as connection:  # its own transaction: within one the view stays as it was
            if connection.execute(query).scalar_one() == 0:
                return
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_is_kept_comes_back(url: str) -> None:
    with Store(url) as store:
        assert store.keep([run(1), run(2)], [incident(1)]) == 1

    with Store(url) as store:
        assert store.incidents() == [incident(1)]
        assert store.runs() == [run(1), run(2)]


def test_keeping_it_again_doubles_nothing_and_a_better_diagnosis_replaces(url: str) -> None:
    with Store(url) as store:
        store.keep([run(1)], [incident(1)])
        assert store.keep([run(1)], [incident(1)]) == 0
        assert store.keep([run(1)], [incident(1, cause="gpu_fault")]) == 0

        assert [one.cause for one in store.incidents()] == ["gpu_fault"]
        assert len(store.runs()) == 1


@pytest.mark.parametrize("read", [Store.history, Store.runs])
def test_a_run_that_another_keeps_while_this_one_reads_is_read_whole_or_not_at_all(
    url: str, read: Callable[[Store], object]
) -> None:
    late = Run("late", "", 1.0, 2.0, (("never-seen", 8),), 8)
    with Store(url) as store, Store(url) as other:
        store.keep([run(1)])
        kept: list[int] = []

        def meanwhile(*_: object) -> None:
            if not kept:
                kept.append(other.keep([late], [Incident("late")]))

        sqlalchemy.event.listen(store.engine, "after_cursor_execute", meanwhile)
        found = read(store)
        assert kept == [1]
        if isinstance(found, History):
            assert found.packed is not None and found.packed.ids in (["w-00001"], ["late", "w-00001"])
            assert len(found.incidents) == len(found.packed.ids) - 1
        else:
            assert found in ([run(1)], [late, run(1)])


def test_a_kept_history_has_the_same_answer_as_the_same_history_in_memory(url: str) -> None:
    made = bad_node(hits=8, nodes=30, seed=5)
    with Store(url) as store:
        store.keep(made.runs, made.incidents)
        kept = store.history()

    answer, same = find(kept).patterns, find(made).patterns
    assert [(one.kind, one.name, one.hits) for one in answer] == [(one.kind, one.name, one.hits) for one in same]
    assert answer[0].posterior == pytest.approx(same[0].posterior)


def test_ranks_dealt_in_turns_keep_their_hosts(url: str) -> None:
    dealt = Run("d", "", 1.0, 2.0, (("a", 1), ("b", 1), ("a", 1), ("b", 1)), 4)
    unknown = Run("e", "", 1.0, 2.0, (("a", 2), ("", 2), ("b", 2)), 6)
    with Store(url) as store:
        store.keep([dealt, unknown], [Incident("d", rank=3, host="b"), Incident("e", rank=5)])
        assert store.runs() == [dealt, unknown]
        packed = store.history().packed

    assert packed is not None
    by_run = {
        name: [
            (packed.names[host], int(count)) for host, count in zip(packed.host[a:b], packed.count[a:b], strict=True)
        ]
        for name, a, b in zip(packed.ids, packed.start, packed.start[1:], strict=False)
    }
    assert by_run["d"] == [("a", 2), ("b", 2)]
    assert by_run["e"] == [("a", 2), ("", 2), ("b", 2)]


@pytest.mark.parametrize("count", [60])
def test_two_writers_at_once_lose_and_double_nothing(url: str, count: int) -> None:
    writers = [writer(url, who, count) for who in ("a", "b")]
    for process in writers:  # both open it, and with it make its tables, at the same time
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in writers:
        go(process)
    for process in writers:
        process.communicate(timeout=120)
        assert process.returncode == 0

    with Store(url) as store:
        kept = sorted(one.run for one in store.incidents())
        assert kept == sorted([f"{who}-{number:05}" for who in "ab" for number in range(count)])
        assert sorted(store.runs(), key=lambda one: one.id) == [
            run(number, who) for who in "ab" for number in range(count)
        ]


def test_one_writer_killed_in_the_middle_leaves_whole_reports_only(url: str) -> None:
    victim, other = writer(url, "v", 100_000), writer(url, "o", 80)
    assert victim.stdout is not None and other.stdout is not None
    assert victim.stdout.readline() == other.stdout.readline() == "ready\n"
    go(victim)
    go(other)
    lines = iter(victim.stdout)  # to the end of the pipe: communicate() would pass by what was read ahead here
    told = next(number for number in map(int, lines) if number >= 25)
    time.sleep(0.003)  # it is in the middle of one
    victim.send_signal(signal.SIGKILL)
    told = max(map(int, lines), default=told)
    victim.communicate()
    other.communicate(timeout=120)
    assert other.returncode == 0

    with Store(url) as store:
        alone(store)
        kept = store.incidents()
        mine = {one.run for one in kept if one.run.startswith("v-")}
        # It tells of each report once that is kept: all of those are there, and at most the one that it was at.
        assert mine in ({f"v-{number:05}" for number in range(told + more)} for more in (1, 2))
        assert mine == {one.id for one in store.runs() if one.id.startswith("v-")}  # no run without its incident
        assert sum(one.run.startswith("o-") for one in kept) == 80
        assert len({one.key for one in kept}) == len(kept)
        assert store.keep([run(0, "n")], [incident(0, "n")]) == 1  # and it can be written to at once


def test_a_migration_keeps_what_was_there(url: str) -> None:
    from whichrank.history import schema
    from whichrank.history.store import _engine

    old = _engine(url, create=True)
    with old.begin() as connection:
        schema.migrate(connection, upto=1)
        assert "sample" not in {column["name"] for column in sqlalchemy.inspect(connection).get_columns("incidents")}
        connection.execute(sqlalchemy.text("INSERT INTO hosts (name) VALUES ('n01')"))
        for number in range(500):
            connection.execute(
                sqlalchemy.text(
                    "INSERT INTO runs (id, label, began, ended, world_size, placement, dealt) VALUES (:id, 'old', 1.5, 2.5, 8, :p, 0)"
                ),
                {"id": f"r{number:04}", "p": bytes([1, 0, 0, 0, 8, 0, 0, 0])},
            )
            connection.execute(
                sqlalchemy.text(
                    "INSERT INTO incidents (key, run, cause, family, grade, confidence, host, step, shards, says) "
                    "VALUES (:key, :run, 'killed', 'dead_rank', 'likely', 0.8, 'n01', 5000000000, 0, 'ä')"
                ),
                {"key": Incident(f"r{number:04}").key, "run": f"r{number:04}"},
            )
    old.dispose()

    with Store(url) as store:
        kept = store.incidents()
        assert {one.run for one in kept} == {f"r{number:04}" for number in range(500)} and len(kept) == 500
        assert all((one.host, one.step, one.says, one.sample) == ("n01", 5_000_000_000, "ä", None) for one in kept)
        assert store.runs()[7] == Run("r0007", "old", 1.5, 2.5, (("n01", 8),), 8)
        store.keep([run(1)], [incident(1)])
        assert len(store.incidents()) == 501
        with store.engine.connect() as connection:
            assert schema.version(connection) == len(schema.VERSIONS)


def test_a_database_of_a_newer_version_is_left_alone(url: str) -> None:
    with Store(url) as store, store.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE whichrank_schema SET version = 99"))

    with pytest.raises(UsageProblem, match="newer whichrank"):
        Store(url)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("mysql://user:secret@host/db", "SQLite or PostgreSQL"),
        ("nonsense://user:secret@x", "SQLite or PostgreSQL|no database"),
        ("postgresql://u:secret@127.0.0.1:1/db", "127.0.0.1"),
        ("sqlite:////proc/no/such/folder/h.db", "unable to open"),
    ],
)
def test_a_wrong_url_is_told_in_one_line_without_its_password(wrong: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says) as error:
        Store(wrong)
    assert "secret" not in str(error.value) and "\n" not in str(error.value)


def test_where_nothing_was_kept_reading_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="no history is kept there yet"):
        Store(str(tmp_path / "none.db"), create=False)
    assert list(tmp_path.iterdir()) == []


def test_the_default_is_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHICHRANK_HISTORY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert default_url() == str(tmp_path / "whichrank" / "history.db")
    monkeypatch.setenv("WHICHRANK_HISTORY", "postgresql://db/x")
    assert default_url() == "postgresql://db/x"


def test_filters(tmp_path: Path) -> None:
    with Store(str(tmp_path / "h.db")) as store:
        store.keep(
            [run(number) for number in range(6)],
            [incident(number, cause="killed" if number % 2 else "network") for number in range(6)],
        )

        assert [one.run for one in store.incidents(cause="killed")] == ["w-00005", "w-00003", "w-00001"]
        assert [one.run for one in store.incidents(since=incident(4).at)] == ["w-00005", "w-00004"]
        assert [one.run for one in store.incidents(host=incident(2).host)] == ["w-00002"]
        assert store.incidents(rank=8) == []
        assert len(store.incidents(limit=2)) == 2


def test_export_to_csv_and_parquet(tmp_path: Path) -> None:
    formula = Incident("w-00001", 1, None, "killed", says="=cmd()", sample="-x")
    rows = export(tmp_path / "i.csv", [incident(1), formula], [run(1), run(2)])
    with (tmp_path / "i.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert rows == len(table) == 3
    assert [row["cause"] for row in table] == ["killed", "network", "none"]
    assert table[0]["says"] == "'=cmd()"  # no spreadsheet runs it
    assert table[1]["hosts"] == "n01*8 n02*8 n03*8 n04*8" and table[1]["step"] == "1000000"

    pq = pytest.importorskip("pyarrow.parquet")
    export(tmp_path / "i.parquet", [incident(1), formula], [run(1), run(2)])
    found = pq.read_table(tmp_path / "i.parquet").to_pylist()
    assert found[1]["at"].timestamp() == incident(1).at and found[1]["step"] == 1_000_000
    assert found[0]["says"] == "=cmd()" and found[2]["run_label"] == "job 2"
