"""The report: what `diagnose` returns, `--json` prints and every renderer draws. Field by field docs/report.md.

`SCHEMA_VERSION` changes when a field changes its meaning; new fields may be added without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from whichrank.findings.dumps import Told
    from whichrank.job.collectives import Collectives

SCHEMA_VERSION = 1

Grade = Literal["proven", "likely", "possible", "undecided"]
Mechanism = Literal[
    "host_stuck",
    "gpu_hang",
    "dead",
    "desync",
    "mismatch",
    "deadlock",
    "network",
    "timeout_short",
    "no_hang",
    "undecided",
]
RankState = Literal["culprit", "waiting", "ahead", "behind", "dead", "silent", "finished", "unknown"]
Do = Literal[
    "restart", "restart_excluding", "resume", "fix_code", "fix_settings", "raise_timeout", "wait", "needs_human", "none"
]

FAMILIES: dict[str, tuple[str, ...]] = {
    "straggler": ("slow_data", "slow_storage", "slow_checkpoint", "rank0_only_work", "slow_compute", "stopped"),
    "dead_rank": ("host_oom", "cuda_oom", "exception", "evicted", "killed"),
    "desync": ("desync_conditional", "desync_uneven_data", "desync_mismatch", "desync_order"),
    "timeout": ("timeout_too_short", "timeout_not_applied"),
    "network": ("network",),
    "set_up": ("init_rendezvous", "version_mismatch", "p2p_shm"),
    "gpu_fault": ("gpu_fault",),
    "gradient_checkpointing": ("gradient_checkpointing",),
    "shared_infrastructure": ("shared_infrastructure",),
    "none": ("none",),
    "undecided": ("undecided",),
}
FAMILY = {cause: family for family, causes in FAMILIES.items() for cause in causes}


@dataclass(frozen=True, slots=True)
class Culprit:
    rank: int | None
    host: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """A statement and the line that carries it. `line` is None for binary evidence."""

    says: str
    source: str
    line: int | None
    excerpt: str


@dataclass(frozen=True, slots=True)
class Check:
    """What would settle it: a sentence, the command to run, and on which host."""

    says: str
    command: str = ""
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Action:
    do: Do
    says: str
    grade: Grade = "undecided"
    exclude_hosts: tuple[str, ...] = ()
    resume_from_step: int | None = None
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """One cause as `--all` shows it: its confidence and what spoke for and against it."""

    cause: str
    confidence: float
    score: float
    clues: tuple[tuple[float, Proof], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    cause: str
    family: str
    grade: Grade
    confidence: float
    mechanism: Mechanism
    culprits: tuple[Culprit, ...]
    hosts: tuple[str, ...]
    rank_grade: Grade
    rank_confidence: float
    says: str
    victims: tuple[int, ...] = ()
    group: str | None = None
    group_ranks: tuple[int, ...] = ()
    seq: int | None = None
    op: str | None = None
    because: tuple[Proof, ...] = ()
    against: tuple[Proof, ...] = ()
    checks: tuple[Check, ...] = ()
    fix: tuple[str, ...] = ()
    stopgap: str = ""
    action: Action = Action("needs_human", "A person must look.")

    @property
    def culprit_ranks(self) -> tuple[int, ...]:
        """The culprits whose rank is known, ascending."""
        return tuple(sorted({culprit.rank for culprit in self.culprits if culprit.rank is not None}))


@dataclass(frozen=True, slots=True)
class RankRow:
    rank: int
    state: RankState
    says: str = ""
    host: str | None = None
    group: str | None = None
    seq: int | None = None
    op: str | None = None
    since: str | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """A line of the timeline. `at` is ISO 8601 in UTC where the evidence has a clock, else None."""

    at: str | None
    says: str
    source: str
    line: int | None
    rank: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A gap as the report shows it."""

    what: str
    why: str
    would_help: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """The first line of the terminal report."""

    files: int = 0
    bytes: int = 0
    ranks: int = 0
    world_size: int | None = None
    hosts: int = 0
    at: str | None = None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What tells incidents apart or joins them over runs; it bears on no verdict. Unknown is None, 0 or empty.

    began, ended      the first and last time of the logs, ISO 8601 in UTC
    hosts             all that the evidence names (which rank ran where: `Report.ranks`)
    step, from_step   where training stood when it stopped, and where it had begun or resumed
    shard, sample     what the culprit was reading; `shards`: how many there are
    site              "file.py:line" of the culprit's own code; `service`: the server, switch or mount waited for
    """

    began: str | None = None
    ended: str | None = None
    hosts: tuple[str, ...] = ()
    step: int | None = None
    from_step: int | None = None
    shard: str | None = None
    shards: int = 0
    sample: str | None = None
    site: str | None = None
    gpu: str | None = None
    local_rank: int | None = None
    service: str | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """The lines before and after a line that proves something."""

    source: str
    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    verdicts: tuple[Verdict, ...]
    ranks: tuple[RankRow, ...] = ()
    timeline: tuple[Moment, ...] = ()
    gaps: tuple[Missing, ...] = ()
    incidents: tuple[Report, ...] = ()
    weighed: tuple[Weighed, ...] = ()
    summary: Summary = Summary()
    circumstances: Circumstances = Circumstances()
    label: str = ""
    schema_version: int = SCHEMA_VERSION
    tool: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    redacted: bool = False
    footnotes: tuple[str, ...] = ()  # what a reader has to know of the report itself; below it on every page
    names: tuple[
        tuple[str, str], ...
    ] = ()  # (kind, name) of what is private in the evidence; for `redact`, never shown
    table: Collectives | None = None  # Flight Recorder dumps and what they say: for pictures, never in the JSON
    told: Told | None = None
    around: tuple[Around, ...] = ()  # for the page, where the lines were asked for; never in the JSON

    @property
    def exit_code(self) -> int:
        """0 where no problem was found, 1 where one was diagnosed, 2 where nothing could be read."""
        if not self.verdicts or not self.summary.files:
            return 2
        if self.verdicts[0].cause == "undecided" and len(self.summary.unread) == self.summary.files:
            return 2  # files, but nothing that any reader knows
        return 0 if self.verdicts[0].cause == "none" else 1
