"""When: incidents of unrelated runs in the same minutes, or always in the same hours of the day.

Chance is even over the hours in which runs were up. One run that crashes again and again makes no burst, and one night
no window: a burst counts a run once, a window counts a day once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

import numpy as np

from whichrank.history.chance import Floats, Ints, binomial_tail, log_choose
from whichrank.history.columns import Columns
from whichrank.history.model import BELIEF, SHARES

MINUTES = (4.0, 9.0, 20.0)  # apart that two incidents of one burst may be
PRIOR = {"burst": 0.07, "window": 0.06}
WIDTHS = (1, 2, 3, 4)  # hours
SLOTS = 48  # of a day: windows begin at full and half hours
BEFOREHAND = 48  # hours of a run to its first incident, as far as anybody knows without looking
MOST_BY_CAUSE = 4.0
MANY = 5000
SHORT = 12  # half hours
LEAST = 0.0005  # a minute: chance of a coincidence is never taken to be smaller


@dataclass(frozen=True, slots=True)
class Timed:
    """A burst pattern or a window of the day: its incidents (rows), its weight, and how chance would do as much."""

    name: str
    label: str
    rows: Ints
    log_bf: float
    tail: float
    hits: int
    of: int
    expected: float
    groups: int  # bursts, or days
    prior: float


def kinds(table: Columns) -> list[Timed]:
    return [found for found in (bursts(table), window(table)) if found is not None]


def _odds(hits: int, trials: int, chance: float) -> float:
    """log Bayes factor of a share of the trials hitting by cause, the rest by chance."""
    return float(_odds_of(np.array([hits]), trials, np.array([chance]))[0])


def _odds_of(hits: Ints, trials: int, chance: Floats) -> Floats:
    """The same for each of many."""
    # a miss is a miss for both; given a cause that explains `share`
    shares = SHARES[:, None]
    logs = hits * np.log1p(shares * (1 / chance - 1)) + (trials - hits) * np.log1p(-shares)
    top = logs.max(0)
    return np.asarray(top + np.log((BELIEF[:, None] * np.exp(logs - top)).sum(0)))


INFRASTRUCTURE = ("slow_storage", "shared_infrastructure", "slow_checkpoint", "slow_data", "network", "init_rendezvous")


def _by_cause(table: Columns, rows: Ints) -> float:
    """What the causes add: are these incidents more often of a shared service than the others are? Never less than 0."""
    names = table.names["cause"].of
    shared = np.isin(table.cause, [place for place, name in enumerate(names) if name in INFRASTRUCTURE])
    inside = np.zeros(len(table), dtype=bool)
    inside[rows] = True
    hits, of = int(shared[inside].sum()), int(inside.sum())
    rate = (float(shared[~inside].sum()) + 1) / (float((~inside).sum()) + 4)
    if hits < 2 or hits / of <= rate:
        return 0.0
    log = -np.log(of + 1) - log_choose(of, hits) - hits * np.log(rate) - (of - hits) * np.log1p(-rate)
    return float(min(MOST_BY_CAUSE, max(0.0, log)))


def bursts(table: Columns) -> Timed | None:
    """Incidents of different runs within minutes of each other, more often than their number makes likely."""
    known = np.flatnonzero(np.isfinite(table.at))
    if len(known) < 3:
        return None
    rows = known[np.argsort(table.at[known], kind="stable")]
    found = [timed for minutes in MINUTES if (timed := _within(table, rows, minutes)) is not None]
    if not found:
        return None
    best = max(found, key=lambda timed: timed.log_bf)
    logs = np.array([timed.log_bf for timed in found])
    mean = float(logs.max() + np.log(np.exp(logs - logs.max()).sum() / len(MINUTES)))
    return replace(best, log_bf=mean + _by_cause(table, best.rows), tail=min(1.0, best.tail * len(MINUTES)))


def _within(table: Columns, rows: Ints, minutes: float) -> Timed | None:
    """Bursts whose incidents (`rows`, in time order) are at most so many minutes apart."""
    at = table.at[rows]
    close = np.diff(at) <= minutes * 60
    pairs = np.flatnonzero(close)
    for place in pairs if len(pairs) <= MANY else pairs[:: len(pairs) // MANY + 1]:  # of very many, some will do
        close[place] = _unrelated(table, int(rows[place]), int(rows[place + 1]))
    hits, trials = int(close.sum()), len(rows) - 1
    if not hits:
        return None
    chance = _coincidence(table, at, minutes)
    joined = np.concatenate(([False], close)) | np.concatenate((close, [False]))
    begins = at[np.flatnonzero(np.diff(np.concatenate(([0], close.astype(np.int64), [0]))) == 1)]
    return Timed(
        "burst", _called(begins), rows[joined], _odds(hits, trials, chance), binomial_tail(hits, trials, chance),
        int(joined.sum()), len(rows), chance * trials, len(begins), PRIOR["burst"],
    )  # fmt: skip


def _called(begins: Floats) -> str:
    """ "2 bursts (2026-04-06 02:10, 2026-04-09 17:31 UTC)": the first three by their times."""
    told = [datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M") for at in begins[:3].tolist()]
    more = ", …" if len(begins) > 3 else ""
    return f"{len(begins)} burst{'s' if len(begins) > 1 else ''} ({', '.join(told)}{more} UTC)"


def _unrelated(table: Columns, one: int, other: int) -> bool:
    """Two runs that were up at the same time, or that share no node: not one job that restarts and fails again."""
    a, b = int(table.run[one]), int(table.run[other])
    if a == b:
        return False
    placed = table.placed
    if placed.began[b] < table.at[one] and placed.ended[a] > placed.began[b]:
        return True
    hosts = [set(placed.host[placed.start[run] : placed.start[run + 1]].tolist()) for run in (a, b)]
    return bool(hosts[0] and hosts[1]) and not hosts[0] & hosts[1]


def _coincidence(table: Columns, at: Floats, minutes: float) -> float:
    """Chance that an incident comes within so many minutes of the one before it, by how many runs were up at those times."""
    hours = _hours_known(table)
    if hours is None:
        span = max(at[-1] - at[0], minutes * 60)
        rate = np.full(len(at), (len(at) - 1) / span)
    else:
        began, ended = np.sort(hours[0]), np.sort(hours[1])
        # Logs may be only the last hours of runs: nobody fails that often.
        hazard = (len(at) + 1) / ((ended - began).sum() + BEFOREHAND * 3600)
        up = np.searchsorted(began, at, "right") - np.searchsorted(ended, at, "left")
        rate = hazard * np.maximum(1, up)
    return float(np.clip((1 - np.exp(-rate * minutes * 60)).mean(), LEAST * minutes, 0.9))


def _hours_known(table: Columns) -> tuple[Floats, Floats] | None:
    """When runs began and ended, of those where it is known; None where that is not most of them."""
    placed = table.placed
    known = np.isfinite(placed.began) & np.isfinite(placed.ended) & (placed.ended > placed.began)
    if known.sum() < 0.8 * len(known) or not known.any():
        return None
    return placed.began[known], placed.ended[known]


def window(table: Columns) -> Timed | None:
    """The same hours of the day on different days."""
    known = np.flatnonzero(np.isfinite(table.at))
    if not len(known):
        return None
    # A crash loop, or one bad night, counts once an hour.
    cells, first = np.unique((table.at[known] // 3600).astype(np.int64), return_index=True)
    slot = ((table.at[known[first]] // 1800) % SLOTS).astype(np.int64)
    day = cells // 24
    if len(np.unique(day)) < 4:
        return None
    of_all = ((table.at[known] // 1800) % SLOTS).astype(np.int64)
    up = _hours_up(table)
    trials = len(slot)
    every = np.bincount(slot, minlength=SLOTS)
    tried = [(width, start) for width in WIDTHS for start in range(SLOTS)]
    inside = [np.arange(start, start + 2 * width) % SLOTS for width, start in tried]
    hits = np.array([every[own].sum() for own in inside])
    least = np.array([0.5 * width / 24 for width, _ in tried])
    shares = np.minimum(0.95, np.maximum([up[own].sum() for own in inside], least))
    logs = _odds_of(hits, trials, shares)
    at = int(logs.argmax())
    (width, start), share = tried[at], float(shares[at])
    own = (slot - start) % SLOTS < 2 * width
    days = len(np.unique((day - ((slot < start) & own))[own]))  # a night that spans midnight is one
    label = f"{start // 2:02}:{30 * (start % 2):02} to {(start // 2 + width) % 24:02}:{30 * (start % 2):02} UTC"
    tail = binomial_tail(int(hits[at]), trials, share) * SLOTS / (2 * width)
    rows = known[(of_all - start) % SLOTS < 2 * width]
    mean = float(logs.max() + np.log(np.exp(logs - logs.max()).mean()))
    return Timed(
        "window", label, rows, mean + _by_cause(table, rows), min(1.0, tail), int(hits[at]), trials, share * trials, days,
        PRIOR["window"],
    )  # fmt: skip


def _hours_up(table: Columns) -> Floats:
    """The share of each half hour of the day in the time that runs were up; even where that is not known.

    Logs may be only the last hours of a run: where all are short, half of the time is taken to be anywhere.
    """
    even = np.full(SLOTS, 1 / SLOTS)
    hours = _hours_known(table)
    if hours is None:
        return even
    began, ended = hours[0] / 1800, hours[1] / 1800
    up = np.full(SLOTS, np.floor((ended - began) / SLOTS).sum())
    first, last = began % SLOTS, began % SLOTS + (ended - began) % SLOTS
    for slot in range(2 * SLOTS):
        up[slot % SLOTS] += np.maximum(0, np.minimum(last, slot + 1) - np.maximum(first, slot)).sum()
    if up.sum() <= 0:
        return even
    short = float(np.median(ended - began)) < SHORT
    return np.asarray(up / up.sum() * (0.5 if short else 1.0) + even * (0.5 if short else 0.0))
