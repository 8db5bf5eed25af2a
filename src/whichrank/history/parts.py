"""Nodes' parts in runs, within a store's transaction: kept, joined into runs, with what they say of incidents."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import delete, select, text

from whichrank.history import schema
from whichrank.history.incident import Incident, Run
from whichrank.history.node import Node, Seat, placed, run_for, run_of, sureness

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FIELDS = tuple(field.name for field in fields(Node) if field.name != "seats")
_INCIDENT = tuple(field.name for field in fields(Incident))


def lock(connection: Connection) -> None:
    """One at a time: which run a part belongs to depends on those that are there. SQLite has but one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7727422)"))


def assign(connection: Connection, node: Node) -> tuple[str, str | None]:
    """(the run of this part, the run that it was kept under before).

    What was decided once stays, unless the part has got another id meanwhile: its ranks tell it later than its launcher.
    """
    table = schema.NODES
    before = connection.execute(select(table.c.run, table.c.shared).where(table.c.key == node.key)).first()
    if before is not None and before.shared == node.shared:
        return before.run, before.run
    others = [(run, one) for run, one in _rows(connection, table.c.shared == node.shared) if one.key != node.key]
    return run_for(node, others), before.run if before is not None else None


def outdated(connection: Connection, node: Node) -> bool:
    """Is more known of this part already? Copies are made at a stall too, and a writing may come late."""
    table = schema.NODES
    there = connection.execute(select(table.c.ended, table.c.outcome).where(table.c.key == node.key)).first()
    if there is None:
        return False
    later, over = bool(there.ended > node.ended), bool(there.outcome != "open")
    return later or (there.ended == node.ended and over and node.outcome == "open")


def row(node: Node, run: str) -> dict[str, Any]:
    seats = [[seat.rank, seat.attempt, seat.local_rank, seat.gpu] for seat in node.seats]
    own = {name: getattr(node, name) for name in _FIELDS}
    return {"key": node.key, "run": run, **own, "seats": msgspec.json.encode(seats).decode(), "kept_at": time.time()}


def nodes_of(connection: Connection, run: str) -> list[Node]:
    return [node for _, node in _rows(connection, schema.NODES.c.run == run)]


def all_of(connection: Connection) -> list[tuple[str, Node]]:
    return _rows(connection, schema.NODES.c.run.is_not(None))


def _rows(connection: Connection, which: Any) -> list[tuple[str, Node]]:
    table = schema.NODES
    query = select(table.c.run, table.c.seats, *(table.c[name] for name in _FIELDS)).where(which).order_by(table.c.key)
    return [
        (run, Node(**dict(zip(_FIELDS, rest, strict=True)), seats=tuple(Seat(*one) for one in msgspec.json.decode(seats))))
        for run, seats, *rest in connection.execute(query)
    ]  # fmt: skip


def gathered(connection: Connection, run: str) -> Run | None:
    """The run that its parts make now; None where it has none any more: then its row goes, unless it had an incident."""
    nodes = nodes_of(connection, run)
    if nodes:
        return run_of(run, nodes)
    if connection.execute(select(schema.INCIDENTS.c.key).where(schema.INCIDENTS.c.run == run).limit(1)).first() is None:
        connection.execute(delete(schema.RUNS).where(schema.RUNS.c.id == run))
    return None


def surer(connection: Connection, run: str, incidents: Iterable[Incident], whole: bool) -> Sequence[Incident]:
    """Those to be kept. whole: they are about the whole run; else another node of it may have said more."""
    nodes = nodes_of(connection, run)
    table = schema.INCIDENTS
    found = []
    for one in incidents:
        mine = placed(one, run, nodes)
        query = select(*(table.c[name] for name in _INCIDENT)).where(table.c.key == mine.key)
        there = connection.execute(query).first()
        if whole or len(nodes) < 2 or there is None or sureness(mine) >= sureness(Incident(*there)):
            found.append(mine)
    return found
