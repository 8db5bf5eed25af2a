"""Guards: five lines that stop whole classes of hangs. Within the training, standard library and torch only.

    from whichrank.guard import agree, check_shards, process_group, rank_zero_first, rank_zero_only
    from whichrank.guard import same_everywhere, step_timeout

Each has a time limit, names the ranks when it ends badly, and does nothing harmful outside of a distributed job. They
talk over a gloo group of their own, whatever the training uses: docs/guards.md. Callbacks: whichrank.guard.hf,
whichrank.guard.lightning, whichrank.guard.accelerate.
"""

from __future__ import annotations

from .errors import GuardError, PeerFailed, RanksDiffer, RanksMissing
from .flags import agree
from .rank_zero import rank_zero_first, rank_zero_only
from .same import same_everywhere
from .shards import Shards, check_shards
from .timeout import step_timeout
from .together import process_group

__all__ = [
    "GuardError",
    "PeerFailed",
    "RanksDiffer",
    "RanksMissing",
    "Shards",
    "agree",
    "check_shards",
    "process_group",
    "rank_zero_first",
    "rank_zero_only",
    "same_everywhere",
    "step_timeout",
]
