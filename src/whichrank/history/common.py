"""What for: the same call site, or the same shared service, over unrelated nodes and ranks.

Programs fail at few places of their code whatever the cause, so agreement there is cheap: chance is taken to put a
fifth of all incidents at one site.
"""

from __future__ import annotations

import numpy as np

from whichrank.history.chance import Floats, Ints
from whichrank.history.columns import NONE, Columns
from whichrank.history.model import Kind

PRIOR = {"site": 0.1, "service": 0.05, "storage": 0.05}
BY_CHANCE = {"site": 0.2, "service": 0.1, "storage": 0.2}
STORAGE = "the shared storage"
STORED = ("slow_storage", "shared_infrastructure")


def kinds(table: Columns) -> list[Kind]:
    found = [
        _labelled(table, "site", table.site, table.names["site"].of),
        _labelled(table, "service", table.service, table.names["service"].of),
        _storage(table),
    ]
    return [kind for kind in found if kind is not None]


def _storage(table: Columns) -> Kind | None:
    """Storage that is slow on several nodes is shared storage, whatever each node calls it."""
    causes = [place for place, name in enumerate(table.names["cause"].of) if name in STORED]
    label = np.where(np.isin(table.cause, causes), 0, NONE)
    return _labelled(table, "storage", label, [STORAGE])


def _labelled(table: Columns, name: str, label: Ints, labels: list[str]) -> Kind | None:
    named = label >= 0
    if named.sum() < 3:
        return None
    share = BY_CHANCE[name]
    # an incident without a site speaks for none; one without a service had no such trouble that anybody saw
    of = named if name == "site" else np.ones(len(table), dtype=bool)
    weight: Floats = table.weight
    present = np.full(len(labels), float(weight[of].sum()))
    expected = np.full(len(labels), share * of.sum())
    lift = np.full(len(table), 1 / share)
    return Kind(
        "service" if name == "storage" else name,
        labels,
        label,
        lift,
        present,
        expected,
        weight,
        PRIOR[name],
        note={"chance": str(share)},
    )
