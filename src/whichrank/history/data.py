"""What was read: the same shard, sample or step behind many incidents, whoever read it.

A run can only fail at a step that it reached, and between the step it began at and the one it failed at chance alone
is even: k runs agreeing within w of T steps has p about ((2w+1)/T)^(k-1). Runs that restart from one checkpoint and
fail soon agree in their step by that alone, and so say little.
"""

from __future__ import annotations

import numpy as np

from whichrank.history.chance import Floats, Ints
from whichrank.history.columns import NONE, Columns
from whichrank.history.model import Kind

PRIOR = {"shard": 0.06, "sample": 0.03, "step": 0.07}
NEAR = (0, 2, 10)  # steps
AT_START = 2  # steps after a start that are the start itself: every run passes there
FEWEST, MANY = 12, 1e5  # shards, where nothing tells how many there are; the most that one agreement may tell
SAMPLES = 1000  # as many at the least


def kinds(table: Columns) -> list[Kind]:
    return [
        kind for kind in (shards(table), samples(table), *(steps(table, near) for near in NEAR)) if kind is not None
    ]


def shards(table: Columns) -> Kind | None:
    """The same shard, by name."""
    return _named(table, "shard", table.shard, np.where(table.shards > 0, table.shards, FEWEST))


def samples(table: Columns) -> Kind | None:
    """The same sample, by name: there are many, whatever the shards."""
    return _named(table, "sample", table.sample, np.full(len(table), SAMPLES))


def _named(table: Columns, name: str, label: Ints, told: Ints) -> Kind | None:
    names = table.names[name].of
    named = label >= 0
    if not named.any():
        return None
    ids, inverse = np.unique(label[named], return_inverse=True)
    hit = np.full(len(table), NONE)
    hit[named] = inverse
    count = np.minimum(MANY, np.maximum(told, 2.0 * len(ids))).astype(np.float64)
    # Whether a run that failed elsewhere ever read it is not known: as likely as not.
    present = np.full(len(ids), 0.5 * float(table.weight[named].sum()))
    expected = np.full(len(ids), float((1 / count[named]).sum()))
    labels = [names[one] for one in ids]
    size = max(float(len(ids)), float(np.median(count[named])))
    return Kind(name, labels, hit, count, present, expected, table.weight, PRIOR[name], size=size)


def steps(table: Columns, near: int) -> Kind | None:
    """The same step, within `near`. The candidates are the steps at which incidents were."""
    begin = np.maximum(0, table.from_step)
    span = (table.step - begin).astype(np.float64)
    named = (table.step >= 0) & (span > AT_START)
    if named.sum() < 2:
        return None
    steps_, from_, weight = table.step[named], begin[named], table.weight[named]
    centres = np.unique(steps_)
    # each incident to the candidate within reach that most others share
    order = np.sort(steps_)
    crowd = np.searchsorted(order, centres + near, "right") - np.searchsorted(order, centres - near, "left")
    best = _crowded(steps_, centres, crowd, near)
    hit = np.full(len(table), NONE)
    hit[named] = best
    lift = np.ones(len(table))
    lift[named] = np.maximum(1.0, (span[named] + 1) / (2 * near + 1))

    def there(amount: Floats) -> Floats:
        """Of the runs that were at each centre: begun before, and not failed before."""
        begun = _before(from_, amount, np.searchsorted(np.sort(from_), centres, "right"))
        failed = _before(steps_, amount, np.searchsorted(order, centres - near, "left"))
        return np.maximum(0.0, begun - failed)

    # The searched steps are all at which a run could fail, not only those where one did.
    size = float(max(len(centres), (steps_.max() - from_.min() + 1) / (2 * near + 1)))
    return Kind(
        "step", [f"step {one}" for one in centres], hit, lift, there(weight), there(1 / lift[named]), table.weight,
        PRIOR["step"] / len(NEAR), size=size, note={"near": str(near)},
    )  # fmt: skip


def _before(values: Ints, amount: Floats, counts: Ints) -> Floats:
    """The amounts of so many of the least values, summed, for each count."""
    return np.concatenate(([0.0], np.cumsum(amount[np.argsort(values)])))[counts]


def _crowded(steps_: Ints, centres: Ints, crowd: Ints, near: int) -> Ints:
    """For each step the most crowded of the candidates within `near`."""
    low = np.searchsorted(centres, steps_ - near, "left")
    high = np.searchsorted(centres, steps_ + near, "right")
    best = low.copy()
    for offset in range(int((high - low).max(initial=1))):
        other = np.minimum(low + offset, high - 1)
        best = np.where(crowd[other] > crowd[best], other, best)
    return np.asarray(best, dtype=np.int64)
