"""The Bayes factor of "one thing is behind many of these incidents", for all candidates of a kind at once.

Each incident i names x_i out of what its run held. If candidate theta is behind a share `pi` of the incidents of the
runs that held it, then

    P(x_i | theta) = pi * q_theta(x_i) + (1 - pi) * b_i(x_i)        theta was in run i
                   = b_i(x_i)                                       it was not: says nothing about it

b_i is chance: where a blame falls if nothing is wrong there. q_theta is where it falls if theta is. The mean over theta
pays for searching, the mean over `pi` for not knowing how much of it theta explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from whichrank.history.chance import Floats, Ints, benjamini_hochberg, most_tail, summed

SHARES = np.array([0.03, 0.08, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.92, 0.97])
BELIEF = (0.3 + SHARES) / (0.3 + SHARES).sum()  # beforehand: what is behind some incidents is often behind most of them


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of explanation, weighed for all its candidates.

    hit[i]      the candidate that incident i names, -1 for none; `lift[i]`: q / b of it
    present     for each candidate, the (weighted) number of incidents in whose runs it took part
    expected    for each candidate, how many of them chance alone would lay at its door
    prior       of the kind as a whole
    size        candidates there are, where more than are named
    """

    name: str
    labels: list[str]
    hit: Ints
    lift: Floats
    present: Floats
    expected: Floats
    weight: Floats
    prior: float
    size: float = 0.0
    note: dict[str, str] = field(default_factory=dict)
    held: Floats | None = None  # unweighted `present`, where that differs
    extra: Floats | None = None  # log-likelihood beside the blames, (len(SHARES), candidates): from whole runs

    def bayes(self) -> Floats:
        """log of L(theta) / L(chance) of each candidate, `pi` integrated out."""
        named = self.hit >= 0
        hit, lift, weight = self.hit[named], self.lift[named], self.weight[named]
        count = len(self.labels)
        hits = np.bincount(hit, weight, count)
        misses = np.maximum(0.0, self.present - hits)
        logs = np.empty((len(SHARES), count))
        for row, share in enumerate(SHARES):
            logs[row] = np.bincount(hit, weight * np.log1p(share * (lift - 1)), count) + misses * np.log1p(-share)
        if self.extra is not None:
            logs += self.extra
        top = logs.max(0)
        return np.asarray(top + np.log(BELIEF @ np.exp(logs - top)))

    def hits(self) -> Floats:
        named = self.hit >= 0
        return summed(self.hit[named], self.weight[named], len(self.labels))

    def tails(self) -> tuple[Floats, Floats]:
        """How often chance gives a candidate as many hits, and its q-value among all of the kind."""
        named = self.hit >= 0
        hits = np.bincount(self.hit[named], minlength=len(self.labels))
        held = self.present if self.held is None else self.held
        tails = most_tail(hits, np.maximum(hits, np.ceil(held - 1e-9)).astype(np.int64), self.expected)
        more = int(max(0, self.size - len(tails)))
        return tails, benjamini_hochberg(tails, more)


@dataclass(frozen=True, slots=True)
class Weighed:
    """The candidates of all kinds of one component, best first, and what is left for chance."""

    kinds: tuple[Kind, ...]
    kind: Ints  # for each candidate
    candidate: Ints  # its number within its kind
    posterior: Floats
    log_bf: Floats
    chance: float  # posterior of "nothing"

    def of(self, name: str) -> float:
        """The posterior of a kind: all its candidates together."""
        numbers = [place for place, kind in enumerate(self.kinds) if kind.name == name]
        return float(self.posterior[np.isin(self.kind, numbers)].sum())


def weigh(kinds: list[Kind]) -> Weighed:
    """Posterior of every candidate, and of chance: the kinds of a component exclude each other."""
    kinds = [kind for kind in kinds if len(kind.labels)]
    null = 1 - sum(kind.prior for kind in kinds)
    factors = [kind.bayes() for kind in kinds]
    logs = [
        np.log(kind.prior) - np.log(max(len(kind.labels), kind.size)) + factor
        for kind, factor in zip(kinds, factors, strict=True)
    ]
    flat = np.concatenate([*logs, [np.log(null)]]) if logs else np.array([0.0])
    posterior = np.exp(flat - flat.max())
    posterior /= posterior.sum()
    number = np.concatenate([np.full(len(log), float(place)) for place, log in enumerate(logs)] or [np.zeros(0)])
    inner = np.concatenate([np.arange(len(log), dtype=np.float64) for log in logs] or [np.zeros(0)])
    order = np.argsort(-posterior[:-1], kind="stable")
    return Weighed(
        tuple(kinds), number.astype(np.int64)[order], inner.astype(np.int64)[order], posterior[:-1][order],
        np.concatenate([*factors, np.zeros(0)])[order], float(posterior[-1]),
    )  # fmt: skip
