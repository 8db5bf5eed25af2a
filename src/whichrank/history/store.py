"""A history that is kept: SQLite in the user's data folder, or PostgreSQL for a team.

Whoever writes does so in one transaction for a whole report: it is kept altogether or not at all, and keeping it again
changes nothing. SQLite uses a write-ahead log and waits for other writers; PostgreSQL has its own ways.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from whichrank.errors import UsageProblem
from whichrank.history.incident import History, Incident, Packed, Placement, Run
from whichrank.history.place import default_url
from whichrank.uncollected import uncollected

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from whichrank.history.node import Node

PATIENCE = 30.0  # seconds to wait for another writer
MANY = 500  # rows in one statement
NEEDED = "keeping a history needs more packages: pip install 'whichrank[history]'"
T = TypeVar("T")
_FIELDS = tuple(field.name for field in fields(Incident))


class Store:
    """An open history. `url`: a file, `sqlite:///…` or `postgresql://…`; `create`: make it where there is none.

    Raises UsageProblem where it cannot be opened, is newer than this program, or a package is missing.
    """

    def __init__(self, url: str | None = None, *, create: bool = True) -> None:
        self.url = url or default_url()
        with self._told():
            self.engine = _engine(self.url, create)
            from whichrank.history import schema

            with self.engine.begin() as connection:
                now = schema.version(connection)
                if now == 0 and not create:
                    raise UsageProblem(
                        f"{self.name}: no history is kept there yet; keep one with `whichrank LOGS --history`"
                    )
            if now != len(schema.VERSIONS):
                with self._writing() as connection:
                    schema.migrate(connection)

    @property
    def name(self) -> str:
        """The URL as it may be shown."""
        if "://" not in self.url:
            return self.url
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            return make_url(self.url).render_as_string(hide_password=True)
        except ArgumentError:
            return "this URL"

    @property
    def file(self) -> str | None:
        """Where it is kept, if in a file."""
        return self.engine.url.database if self.engine.url.get_backend_name() == "sqlite" else None

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database as one line for people."""
        try:
            from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
        except ImportError as error:
            raise UsageProblem(NEEDED) from error
        try:
            yield
        except ModuleNotFoundError as error:
            raise UsageProblem(NEEDED) from error
        except (ArgumentError, NoSuchModuleError) as error:
            raise UsageProblem(
                f"{self.name} is no database that can be used: a file, sqlite:///… or postgresql://…"
            ) from error
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split())[:300] or type(error.orig).__name__
            raise UsageProblem(f"history {self.name}: {reason}") from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One transaction that writes: all of it or nothing."""
        with self.engine.connect().execution_options(whichrank_writes=True) as connection, connection.begin():
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """One transaction that reads: everything as it was at one moment, whoever writes meanwhile."""
        with self._told(), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":  # there each statement sees a moment of its own otherwise
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    def keep(self, runs: Sequence[Run], incidents: Sequence[Incident] = ()) -> int:
        """Keep runs (healthy ones too: they are exposure) and incidents; how many of the incidents were new.

        What is there already is replaced: a later diagnosis knows more.
        """
        with self._told(), self._writing() as connection:
            return self._keep(connection, runs, incidents)

    def keep_node(self, node: Node, incidents: Sequence[Incident] = (), *, whole: bool = True) -> int:
        """Keep a node's part in a run, with which it makes the run's row, and incidents of that run, whatever run they
        name; how many of these were new. whole: they come from the evidence of all nodes of the run.

        Nothing changes where the part is known up to a later time.
        """
        from whichrank.history import parts, schema

        with self._told(), self._writing() as connection:
            parts.lock(connection)
            if parts.outdated(connection, node):
                return 0
            run, before = parts.assign(connection, node)
            _upsert(connection, schema.NODES, "key", [parts.row(node, run)])
            runs = [made for id_ in sorted({run, before or run}) if (made := parts.gathered(connection, id_))]
            return self._keep(connection, runs, parts.surer(connection, run, incidents, whole))

    def nodes(self) -> list[tuple[str, Node]]:
        """(run, node) for every part that `whichrank run` kept."""
        from whichrank.history import parts

        with self._reading() as connection:
            return parts.all_of(connection)

    def _keep(self, connection: Connection, runs: Sequence[Run], incidents: Sequence[Incident]) -> int:
        from sqlalchemy import func, select

        from whichrank.history import schema

        numbers = self._hosts(connection, {host for run in runs for host, _ in run.placement if host})
        rows = [
            {
                "id": run.id, "label": run.label, "began": run.began, "ended": run.ended, "world_size": run.world_size,
                "placement": _packed(run.placement, numbers), "dealt": _dealt(run.placement), "kept_at": time.time(),
            }
            for run in runs
        ]  # fmt: skip
        _upsert(connection, schema.RUNS, "id", rows)
        found = {one.key: one for one in incidents}
        known = sum(
            connection.execute(select(func.count()).where(schema.INCIDENTS.c.key.in_(some))).scalar_one()
            for some in _portions(list(found))
        )
        rows = [{"key": key, **{name: getattr(one, name) for name in _FIELDS}} for key, one in found.items()]
        _upsert(connection, schema.INCIDENTS, "key", rows)
        return len(found) - known

    def _hosts(self, connection: Connection, names: Iterable[str]) -> dict[str, int]:
        from sqlalchemy import select

        from whichrank.history import schema

        wanted = sorted(names)  # one order for all writers: none waits for another that waits for it
        dialect = _dialect(connection)
        found: dict[str, int] = {}
        for some in _portions(wanted):
            new = dialect.insert(schema.HOSTS).values([{"name": name} for name in some])
            connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
            rows = connection.execute(
                select(schema.HOSTS.c.name, schema.HOSTS.c.id).where(schema.HOSTS.c.name.in_(some))
            )
            found.update((name, number) for name, number in rows)
        return found

    def incidents(self, *, host: str | None = None, cause: str | None = None, rank: int | None = None,
                  since: float | None = None, limit: int | None = None) -> list[Incident]:  # fmt: skip
        """Incidents that fit, the latest first."""
        with self._reading() as connection:
            return _incidents(connection, host, cause, rank, since, limit)

    @uncollected()
    def history(self, *, since: float | None = None) -> History:
        """All of it, the runs in arrays: 100,000 of them take a second."""
        from sqlalchemy import select

        from whichrank.history import schema

        runs = schema.RUNS
        query = select(runs.c.id, runs.c.began, runs.c.ended, runs.c.world_size, runs.c.placement, runs.c.dealt)
        if since is not None:
            query = query.where((runs.c.ended >= since) | (runs.c.ended.is_(None)))
        with self._reading() as connection:
            hosts = connection.execute(select(schema.HOSTS.c.id, schema.HOSTS.c.name)).all()
            rows = connection.execute(query.order_by(runs.c.id)).all()
            incidents = _incidents(connection, since=since, ordered=False)
        return History((), tuple(incidents), _unpacked(rows, dict(hosts)))

    def runs(self) -> list[Run]:
        """Every run with its placement by name."""
        from sqlalchemy import select

        from whichrank.history import schema

        runs = schema.RUNS
        with self._reading() as connection:
            names = {0: "", **dict(connection.execute(select(schema.HOSTS.c.id, schema.HOSTS.c.name)).all())}
            rows = connection.execute(
                select(
                    *(runs.c[name] for name in ("id", "label", "began", "ended", "placement", "world_size"))
                ).order_by(runs.c.id)
            )
            return [
                Run(
                    id_,
                    label,
                    began,
                    ended,
                    tuple((names.get(int(host), ""), int(count)) for host, count in _pairs(placement)),
                    size,
                )
                for id_, label, began, ended, placement, size in rows
            ]


def _incidents(connection: Connection, host: str | None = None, cause: str | None = None, rank: int | None = None,
               since: float | None = None, limit: int | None = None, ordered: bool = True) -> list[Incident]:  # fmt: skip
    from sqlalchemy import select

    from whichrank.history import schema

    table = schema.INCIDENTS
    query = select(*(table.c[name] for name in _FIELDS))
    if ordered:
        query = query.order_by(table.c.at.desc().nulls_last(), table.c.key)
    for column, value in ((table.c.host, host), (table.c.rank, rank)):
        query = query.where(column == value) if value is not None else query
    if cause is not None:
        query = query.where((table.c.cause == cause) | (table.c.family == cause))
    if since is not None:
        query = query.where(table.c.at >= since)
    return [Incident(*row) for row in connection.execute(query.limit(limit)).all()]


def _dialect(connection: Connection) -> Any:
    """SQLAlchemy's module with this database's INSERT … ON CONFLICT."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql
    from sqlalchemy.dialects import sqlite

    return sqlite


def _portions(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as one statement may hold."""
    return (rows[place : place + MANY] for place in range(0, len(rows), MANY))


def _upsert(connection: Connection, table: Any, key: str, rows: Sequence[dict[str, Any]]) -> None:
    """Insert, or replace what has the same key; in the order of keys, so that two writers never wait for each other."""
    if not rows:
        return
    command = _dialect(connection).insert(table)
    others = {name: command.excluded[name] for name in rows[0] if name != key}
    command = command.on_conflict_do_update(index_elements=[key], set_=others)
    rows = sorted(rows, key=lambda row: row[key])
    for some in _portions(rows):
        connection.execute(command, some)


def _engine(url: str, create: bool) -> Engine:
    from sqlalchemy import create_engine, event, make_url

    if "://" not in url:
        path = Path(url).expanduser()
        if not create and not path.exists():
            raise UsageProblem(f"{path}: no history is kept there yet; keep one with `whichrank LOGS --history`")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageProblem(f"cannot make the folder {path.parent}: {error.strerror or error}") from error
        url = f"sqlite:///{path}"
    made = make_url(url)
    if made.drivername in ("postgresql", "postgres"):
        made = made.set(drivername="postgresql+psycopg")
    if made.get_backend_name() not in ("sqlite", "postgresql"):
        raise UsageProblem("a history is kept in SQLite or PostgreSQL: a file, sqlite:///… or postgresql://…")
    lite = made.get_backend_name() == "sqlite"
    engine = create_engine(made, connect_args={"timeout": PATIENCE} if lite else {"connect_timeout": 10})
    if lite:
        event.listen(engine, "connect", _lite)
        event.listen(engine, "begin", _begin)
    return engine


def _lite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # BEGIN is ours: sqlite3 would begin too late, and deadlock with other writers
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA busy_timeout={int(PATIENCE * 1000)}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("whichrank_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _packed(placement: Placement, numbers: dict[str, int]) -> bytes:
    pairs = [(numbers.get(host, 0), count) for host, count in placement]
    return np.array(pairs, dtype="<i4").reshape(len(pairs), 2).tobytes()


def _dealt(placement: Placement) -> int:
    """1 where ranks were dealt to hosts in turns, so that a host comes more than once."""
    return int(len({host for host, _ in placement}) < len(placement))


def _pairs(blob: bytes) -> np.ndarray:
    return np.frombuffer(blob[: len(blob) // 8 * 8], dtype="<i4").reshape(-1, 2)


def _unpacked(rows: Sequence[Any], names: dict[int, str]) -> Packed:
    """All placements in one table. A host that comes twice in a run's order of ranks (dealt in turns) counts once."""
    order = [0, *sorted(names)]  # 0: a rank of which nobody told where it ran
    place = np.zeros(max(order) + 1, dtype=np.int64)
    place[order] = np.arange(len(order))
    blobs = [bytes(row[4]) for row in rows]
    pairs = _pairs(b"".join(blobs))
    owner = np.repeat(np.arange(len(blobs)), np.array([len(blob) // 8 for blob in blobs], dtype=np.int64))
    host, count = place[pairs[:, 0]], pairs[:, 1].astype(np.int64)
    if any(row[5] for row in rows):
        keys = owner * (len(order) + 1) + host
        unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        total = np.bincount(inverse, count).astype(np.int64)
        by_first = np.argsort(first, kind="stable")
        owner, host, count = (
            (unique // (len(order) + 1))[by_first],
            (unique % (len(order) + 1))[by_first],
            total[by_first],
        )
    start = np.searchsorted(owner, np.arange(len(blobs) + 1))

    def floats(column: int) -> Any:
        return np.array([np.nan if row[column] is None else row[column] for row in rows], dtype=np.float64)

    size = np.array([row[3] for row in rows], dtype=np.int64)
    sums = np.concatenate(([0], np.cumsum(count)))
    size = np.maximum(size, sums[start[1:]] - sums[start[:-1]])
    return Packed(
        [row[0] for row in rows],
        floats(1),
        floats(2),
        size,
        start,
        host,
        count,
        ["", *(names[number] for number in order[1:])],
    )
