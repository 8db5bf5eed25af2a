"""How often chance alone does as much: tails of Poisson, binomial and hypergeometric, many at once, and permutations."""

from __future__ import annotations

from functools import lru_cache
from math import lgamma

import numpy as np
from numpy.typing import NDArray

LOOKED_AT = 256
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _log_factorials(most: int) -> Floats:
    """log k! for k up to `most`, at the least."""
    return _log_factorial_table(1 << max(10, most.bit_length()))


@lru_cache(maxsize=8)
def _log_factorial_table(most: int) -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1, dtype=np.float64)))))


def summed(numbers: Ints, weight: Floats, count: int) -> Floats:
    """For each of `count` numbers the sum of its weights."""
    return np.bincount(numbers, weight, count).astype(np.float64)


def log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def poisson_tail(hits: Ints, expected: Floats) -> Floats:
    """P(at least so many hits) where `expected` are expected, for each.

    >>> [round(float(p), 4) for p in poisson_tail(np.array([0, 2, 3]), np.array([1.0, 0.5, 0.5]))]
    [1.0, 0.0902, 0.0144]
    """
    tails = np.ones(len(hits))
    for place in np.flatnonzero(hits > 0):
        tails[place] = _poisson(int(hits[place]), float(expected[place]))
    return tails


def most_tail(hits: Ints, trials: Ints, expected: Floats) -> Floats:
    """P(at least so many hits) for each, where `expected` are expected of so many trials of unequal chances.

    Of all such trials even ones have the longest tail (Hoeffding 1956), and a Poisson's is longer still: the binomial
    is the Poisson test against exposure, for exposures that are known one by one. Of many candidates only the most
    unlikely are looked at, the rest count as likely.
    """
    tails = np.ones(len(hits))
    unlikely = np.where(hits > 1, (hits - expected) / np.sqrt(expected + 1e-9), -np.inf)
    order = np.argsort(-unlikely, kind="stable")[:LOOKED_AT]
    for place in order[unlikely[order] > 0]:
        many, mean = int(trials[place]), float(expected[place])
        if hits[place] > mean:
            tails[place] = binomial_tail(int(hits[place]), many, min(1.0, mean / many))
    one = (hits == 1) & (expected < 1)
    tails[one] = 1 - np.exp(-expected[one])
    return tails


@lru_cache(maxsize=4096)
def _poisson(hits: int, expected: float) -> float:
    if expected <= 0:
        return 0.0
    if hits <= expected:  # one minus what is below
        below = np.arange(hits)
        logs = below * np.log(expected) - expected - _log_factorials(max(16, hits))[below]
        return float(max(0.0, 1 - np.exp(logs).sum()))
    ks = np.arange(hits, hits + 200 + int(4 * expected**0.5))
    logs = ks * np.log(expected) - expected - _log_factorials(int(ks[-1]))[ks]
    return float(min(1.0, np.exp(logs).sum()))


def binomial_tail(hits: int, trials: int, p: float) -> float:
    """P(at least `hits` of `trials`).

    >>> round(binomial_tail(2, 4, 0.5), 4)
    0.6875
    """
    if hits <= 0:
        return 1.0
    if p <= 0 or hits > trials:
        return 0.0
    if p >= 1:
        return 1.0
    # beyond ten deviations of the longer of both ways there is nothing to add
    ks = np.arange(hits, min(trials, hits + 100 + int(12 * (trials * p * (1 - p)) ** 0.5)) + 1)
    logs = _log_factorials(trials)
    terms = logs[trials] - logs[ks] - logs[trials - ks] + ks * np.log(p) + (trials - ks) * np.log1p(-p)
    return float(min(1.0, np.exp(terms).sum()))


def hypergeometric_tail(hits: int, drawn: int, marked: int, total: int) -> float:
    """P(at least `hits` of `drawn` are marked), `marked` of `total` being so: blamed nodes under one switch.

    >>> round(hypergeometric_tail(3, 4, 4, 64), 5)
    0.00038
    """
    logs = [
        log_choose(marked, k) + log_choose(total - marked, drawn - k) - log_choose(total, drawn)
        for k in range(max(0, hits, drawn - (total - marked)), min(drawn, marked) + 1)
    ]
    return float(min(1.0, np.exp(logs).sum())) if logs else 0.0


def benjamini_hochberg(tails: Floats, more: int = 0) -> Floats:
    """The q-value of each: the share of false discoveries if all as good as this one are taken (Benjamini, Hochberg 1995).

    more: candidates beside these, with tails of 1.

    >>> [round(float(q), 3) for q in benjamini_hochberg(np.array([0.01, 0.02, 0.9]))]
    [0.03, 0.03, 0.9]
    >>> [round(float(q), 3) for q in benjamini_hochberg(np.array([0.01, 0.02, 0.9]), 7)]
    [0.1, 0.1, 1.0]
    """
    if not len(tails):
        return tails
    order = np.argsort(tails, kind="stable")
    scaled = tails[order] * (len(tails) + more) / np.arange(1, len(tails) + 1)
    values = np.empty(len(tails))
    values[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return values


def permuted_most(sizes: Ints, most: int, rounds: int = 2000, seed: int = 7) -> float:
    """P(some rank is blamed at least `most` times) if in each run, of so many ranks, the blame is dealt anew.

    The permutation test of blame within runs. For many runs the union bound over ranks takes its place: it is then
    as sharp, and dealing would take long.
    """
    if most <= 1:
        return 1.0
    if len(sizes) > 2000:
        ranks = np.unique(sizes)
        expected = np.array([float((1.0 / sizes[sizes >= size]).sum()) for size in ranks])
        return float(min(1.0, (poisson_tail(np.full(len(ranks), most), expected) * ranks).sum()))
    dice = np.random.default_rng(seed)
    dealt = np.sort((dice.random((rounds, len(sizes))) * sizes).astype(np.int64), axis=1)
    # `most` alike ones in a sorted row are `most - 1` places apart
    again = (
        (dealt[:, most - 1 :] == dealt[:, : dealt.shape[1] - most + 1]).any(axis=1)
        if most <= len(sizes)
        else dealt[:, :0].any(axis=1)
    )
    return float((again.sum() + 1) / (rounds + 1))
