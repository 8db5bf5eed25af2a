"""The tables of a kept history, and their versions. SQLAlchemy Core; imported only where a history is kept or read.

VERSIONS holds one migration for each version, in order; a database goes through those that it lacks, in one transaction.
Never change one that a release had: add another.

1  hosts, runs, incidents
2  incidents: sample, service; runs: kept_at, so that a history can be pruned by age
3  incidents: source
4  nodes: each node's part in a run that `whichrank run` watched
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from whichrank.errors import UsageProblem

META = MetaData()
VERSION = Table("whichrank_schema", META, Column("version", Integer, nullable=False))
HOSTS = Table(
    "hosts",
    META,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", String(255), nullable=False, unique=True),
)
# placement: pairs of little-endian int32 (host, ranks on it), in the order of ranks; host 0: nobody told
RUNS = Table(
    "runs",
    META,
    Column("id", String(32), primary_key=True),
    Column("label", Text, nullable=False, default=""),
    Column("began", Float(53)),
    Column("ended", Float(53)),
    Column("world_size", Integer, nullable=False, default=0),
    Column("placement", LargeBinary, nullable=False, default=b""),
    Column("dealt", Integer, nullable=False, default=0),  # does a host come more than once in it?
    Column("kept_at", Float(53)),
)
INCIDENTS = Table(
    "incidents",
    META,
    Column("key", String(32), primary_key=True),
    Column("run", String(32), nullable=False),
    Column("attempt", Integer),
    Column("at", Float(53)),
    Column("cause", String(64), nullable=False),
    Column("family", String(64), nullable=False),
    Column("grade", String(16), nullable=False),
    Column("confidence", Float, nullable=False),
    Column("rank", Integer),
    Column("host", String(255)),
    Column("gpu", String(255)),
    Column("local_rank", Integer),
    Column("role", String(255)),
    Column("site", Text),
    Column("step", BigInteger),
    Column("from_step", BigInteger),
    Column("shard", Text),
    Column("shards", BigInteger, nullable=False, default=0),
    Column("sample", Text),
    Column("service", Text),
    Column("says", Text, nullable=False, default=""),
    Column("source", Text),
)
# A run of `nodes` has its row in `runs`, made from them. shared: of the id that all nodes of the run have
NODES = Table(
    "nodes",
    META,
    Column("key", String(32), primary_key=True),
    Column("run", String(32), nullable=False),
    Column("shared", String(32), nullable=False),
    Column("name", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("host", String(255), nullable=False),
    Column("began", Float(53), nullable=False),
    Column("ended", Float(53), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("exit_code", Integer),
    Column("world_size", Integer, nullable=False),
    Column("seats", Text, nullable=False),  # JSON: [[rank, attempt, local rank, GPU], …]
    Column("command", Text, nullable=False),
    Column("kept_at", Float(53)),
)
Index("nodes_run", NODES.c.run)
Index("nodes_shared", NODES.c.shared)
INDEXES = (
    Index("incidents_at", INCIDENTS.c.at),
    Index("incidents_host", INCIDENTS.c.host),
    Index("incidents_run", INCIDENTS.c.run),
)
_LATER: dict[int, dict[str, tuple[str, ...]]] = {
    2: {"incidents": ("sample", "service"), "runs": ("kept_at",)},
    3: {"incidents": ("source",)},
}  # columns that a later version added


def first(connection: Connection) -> None:
    """Version 1: the tables without what came later."""
    old = MetaData()
    later = {(table, column) for added in _LATER.values() for table, columns in added.items() for column in columns}
    for table in (HOSTS, RUNS, INCIDENTS):
        Table(table.name, old, *(column._copy() for column in table.columns if (table.name, column.name) not in later))
    old.create_all(connection, checkfirst=False)
    for index in INDEXES:
        index.create(connection)


def _add(connection: Connection, later: int) -> None:
    """More columns; what was kept before has nothing in them."""
    quote = connection.dialect.identifier_preparer.quote
    for table in (RUNS, INCIDENTS):
        for name in _LATER[later].get(table.name, ()):
            kind = table.c[name].type.compile(connection.dialect)
            connection.execute(text(f"ALTER TABLE {quote(table.name)} ADD COLUMN {quote(name)} {kind}"))


def _nodes(connection: Connection) -> None:
    NODES.create(connection, checkfirst=False)


VERSIONS: tuple[Callable[[Connection], None], ...] = (
    first,
    partial(_add, later=2),
    partial(_add, later=3),
    _nodes,
)


def version(connection: Connection) -> int:
    """The version of the database; 0 for an empty one."""
    if not inspect(connection).has_table(VERSION.name):
        return 0
    return int(connection.execute(select(func.coalesce(func.max(VERSION.c.version), 0))).scalar_one())


def migrate(connection: Connection, upto: int = len(VERSIONS)) -> None:
    """Bring the tables to this version, within the transaction of `connection`; one at a time, whoever else writes."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7727421)"))
    now = version(connection)
    if now > len(VERSIONS):
        raise UsageProblem(
            f"this history was written by a newer whichrank (schema {now}; this one knows {len(VERSIONS)}): update whichrank"
        )
    if now >= upto:
        return
    if not inspect(connection).has_table(VERSION.name):
        VERSION.create(connection)
        connection.execute(insert(VERSION).values(version=0))
    for change in VERSIONS[now:upto]:
        change(connection)
    connection.execute(update(VERSION).values(version=upto))
