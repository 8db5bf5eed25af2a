"""What a rank was doing when the others waited: read from what it printed last.

Words of the field, not of a program: saving, evaluating, uploading, tokenising, compiling, loading data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whichrank.facts import Said
from whichrank.findings.arrivals import Arrivals
from whichrank.findings.progress import Bar, bar_of
from whichrank.findings.retries import ASKED, request_of
from whichrank.job.model import Job, before

Activity = Literal[
    "checkpoint", "loading", "evaluation", "upload", "preprocess", "compile", "data", "generate", "cleanup"
]

# The order matters: the first that matches wins ("uploading checkpoint" is an upload).
_SCRIPT = re.compile(r"\S*/\S+\.py\b")  # what a program is called is not what it does now
_PATTERNS: tuple[tuple[Activity, str], ...] = (
    (
        "upload",
        r"\bupload(?:ing|ed)?\b|\bpush(?:ing|ed)? (?:to|the)?.*\b(?:hub|registry|bucket|s3|gcs)\b|\b(?:copying|syncing|transferring|archiving)\b.*(?:s3:|gs:|bucket|hub|remote|nas|tape)|rclone|gsutil|aws s3|wandb.*(?:artifact|sync)",
    ),
    (
        "compile",
        r"\bcompil(?:e|es|ed|ing|ation)\b|\bautotun(?:e|ing)\b|\binductor\b|\bdynamo\b|\btriton\b|\bnvcc\b|ninja|building extension|cuda ?graph.*captur|captur\w+ .*cuda ?graph|^\W*capturing batches\b|\btracing (?:the )?model|jit[- ]?compil|\bgraphs? done\b|\bbuil(?:t|d|ding)\b.*\b(?:kernels?|extensions?|ops?|engine|variants?|module)\b|\bkernels?\b.*\bbuil(?:t|d|ding)\b|\b\d+/\d+ built\b|tensorrt|warm(?:ing)?[ -]?up (?:the )?(?:model|engine|kernels)",
    ),
    (
        "preprocess",
        r"\btoken(?:iz|is)(?:e|ing|ed)\b|running tokenizer|\(num_proc=\d+\)|\b(?:building|loading|preparing|merging|build and save) (?:the |raw )?[\w, ]{0,40}\b(?:datasets?|(?:train|valid|test)\w* indices)\b|\b_?IndexReader\b|\b(?:pre)?process(?:ing|ed)? (?:the )?(?:dataset|data|corpus|docs|documents|files|examples|split)|\bpack(?:ing|ed) (?:sequences|dataset|samples)|building (?:the )?(?:\w+ )?(?:index|indices|vocab|cache)|\bindex(?:ing|ed) |\bshuffl(?:e|ing) (?:index|dataset|the)|generating \w+ (?:split|examples|samples)|\bMap(?:\s*\(num_proc=\d+\))?:|\bFilter(?:\s*\(num_proc=\d+\))?:|\bextracting\b|\bunpack(?:ing|ed)\b|\bdownload(?:ing|ed)\b|\bcach(?:ing|ed) (?:the )?(?:latents|features|dataset|embeddings|samples)|feature extraction|\bdeduplicat|\bcounting tokens|\bscanning\b|\bsorting\b|(?<!or )\bstaging\b",
    ),
    (
        "evaluation",
        r"\beval(?:uat(?:e|es|ed|ing|ion))?\b|\b(?:testing|predicting|sanity checking) dataloader\b|\btest_gen_batch\b|\bvalid on '|'eval_runtime'|\bvalid(?:ation|ating|ate)\b|\bbenchmark(?:ing)?\b|\bdecod(?:ed|ing) \d+|\b(?:computing|compute) (?:metrics|bleu|rouge|wer|fid|map|perplexity)\b|\btest(?:ing)? (?:set|split|loop)\b|\binference on\b|\bpredict(?:ing|ions?)\b|\bscoring\b|\brender(?:ing|ed)? (?:samples|video|images|plots?)|\bplot(?:ting)?\b|\bcalibrat",
    ),
    ("loading", r"^(?!.*\bsav(?:e|ed|ing)\b).*\bload(?:ing|ed)\b.{0,40}\b(?:checkpoint|ckpt)\b"),
    (
        "checkpoint",
        r"\blocal_global_step_folder\b|\bsav(?:e|es|ed|ing)\b|\bcheckpoint(?:s|ing)?\b(?!ing is|.*incompatible)|\bckpt\b|\b(?:writ(?:e|es|ten|ing)|wrote|dump(?:ing|ed)?|serializ(?:e|ing|ed)|flush(?:ing|ed)?)\b.*(?:shard|model|weights|state|optimizer|file|\.pt\b|\.pth|\.bin|\.safetensors|\.distcp)|state[_ ]?dict|\bconsolidat(?:e|ing|ed)\b|file \d+/\d+ written|\bgather(?:ing)? (?:full )?(?:state|weights|params)|\bmerg(?:e|ing) (?:shards|weights|lora)|\b(?:saving|writing|taking) (?:a )?snapshot\b|\bexport(?:ing|ed)? (?:the )?(?:model|weights|onnx)",
    ),
    (
        "loading",
        r"\bload(?:ing|ed)? (?:the )?(?:\w+ )?(?:checkpoint|weights|model|state|shards?)|\bresum(?:e|ing|ed) from\b|\brestor(?:e|ing|ed)\b|from_pretrained|prefetching \S+\.safetensors|\breading (?:model|weights|checkpoint)",
    ),
    (
        "generate",
        r"\bgenerat(?:e|ing|ed|ion)\b|^\W*processed prompts\b|\bmake[_ ]experience\b|\brollout\b|\bsampling\b",
    ),
    (
        "data",
        r"disconnected from \w* ?data|\bdata (?:host|server|source|service|stream)\b.*(?:retry|timed? ?out|unreachable|disconnect|stall)|retrying .{0,40}(?:shard|sample|dataset|data\b)|\breading (?:shard|sample|batch|file|record|chunk)|\bfetch(?:ing|ed)? (?:shard|sample|batch|data)|\bopen(?:ing|ed)? (?:shard|file|tar)\b|data ?loader(?!\w*[ _-]?(?:time|wait|sec|s\b|ms\b))|\bnext batch\b|\bwaiting for (?:data|batch|samples)|\bload(?:ing|ed)? (?:the )?(?:\w+ )?(?:batch|sample|data|shard|dataset|video|clip|audio|image)|\bdecod(?:e|ing) (?:video|clip|audio|image|frame)|\bslow (?:read|sample|batch|decode)|\bprefetch|\bdata(?:loader)?[_ ](?:time|load|wait)\b[ :=]{0,3}\d{2,}(?!\d*[ ]?ms)",
    ),
    ("cleanup", r"\bclean(?:ing)? up\b|\bdelet(?:e|ing) old\b|\bpurg|\bcompress(?:ing)?\b"),
)
_WORDS = tuple((activity, re.compile(pattern, re.I)) for activity, pattern in _PATTERNS)
_STAMPED = re.compile(r"^\s*\[\d{4}-\d\d-\d\d[T ][\d:.,]+\]\s*")  # a stamp in brackets, not a list of settings
_NOT_DOING = re.compile(
    r"\basync\b.*\bscheduled\b|\bscheduled an async\b|\bcollective\b|\bwatchdog\b|\bNCCL\b|latest states|^\W*(?:cfg|config|args?|arguments|namespace|settings?|options|resolved|usage)\b|(?:\w+[=:]\S+[ ,]+){3}|Compile with `|For debugging|^\s*File \"|\bfuture\b.*release|deprecat|UserWarning|FutureWarning|^\s*(?!\{'eval_)[{(\[][^\])}]*[:=].*[})\]]\s*$|\bevery \d+ (?:steps|iter|epoch)",
    re.I,
)
_DONE = re.compile(
    r"\b(?:saved|done|finished|complete[d]?|took|written in|uploaded|ready)\b|'eval_runtime'|\bvalid on '|\b\w+ed\b.{0,40} in \d[\d.:]* ?(?:s|sec|seconds|min|ms|h)\b",
    re.I,
)
_RETRY = re.compile(rf"\bretr(?:y|ies|ying)\b|\battempt\b|{ASKED.pattern}", re.I)
LONGEST = 1000  # characters of a line that are looked at
LATELY = 400  # lines of a rank
ASKED_OF = 32  # ranks that are compared with, of however many
AHEAD = 8  # steps that a rank's queue of batches may last while a request is repeated
_PART = re.compile(r"\b(\d+)\s*(?:/|of|-of-)\s*(\d+)\b")


@dataclass(frozen=True, slots=True)
class Doing:
    """One activity of one speaker (rank None: a line that names no rank)."""

    rank: int | None
    activity: Activity
    first: Said
    last: Said
    lines: int
    after: bool  # it went on after the first timeout
    finished: bool  # it says that it came to its end
    bar: Bar | None
    shared: bool = False  # most ranks that waited printed the same, as often: it is no rank's own

    def left_s(self) -> float | None:
        """Seconds that it would have needed still, from its own pace."""
        if self.finished:
            return 0.0
        if _RETRY.search(self.last.text):
            return None  # "retrying [7/20]" counts attempts, not work
        if self.bar and self.bar.left_s is not None:
            return self.bar.left_s
        a, b = _part(self.first.text), _part(self.last.text)
        if a and b and b[0] > a[0] and self.first.at_ns and self.last.at_ns and self.last.at_ns > self.first.at_ns:
            pace = (self.last.at_ns - self.first.at_ns) / 1e9 / (b[0] - a[0])
            return pace * max(0, b[1] - b[0])
        return None


def _part(text: str) -> tuple[int, int] | None:
    found = _PART.findall(text)
    parts = [(int(a), int(b)) for a, b in found if int(a) <= int(b)]
    return parts[-1] if parts else None


def activity_of(text: str) -> Activity | None:
    """The activity that a line speaks of, or None.

    >>> activity_of("[main process] uploading out/t5 to the hub")
    'upload'
    >>> activity_of("step 41184 loss 2.31")
    """
    if ASKED.search(text):  # an address holds all sorts of words
        return request_of(text)
    text = _STAMPED.sub("", text[:LONGEST])
    text = _SCRIPT.sub("", text)
    if _NOT_DOING.search(text):
        return None
    for activity, pattern in _WORDS:
        if pattern.search(text):
            return activity
    return None


_KNOWN: dict[str, Activity | None] = {}


def _of_shape(shape: str, text: str) -> Activity | None:
    """activity_of, once for each shape of line."""
    if shape not in _KNOWN:
        if len(_KNOWN) > 100_000:
            _KNOWN.clear()
        _KNOWN[shape] = activity_of(text)
    return _KNOWN[shape]


def doings(job: Job, arrived: Arrivals) -> tuple[Doing, ...]:
    """What each rank that did not wait (and every line without a rank) was last busy with."""
    speakers: dict[tuple[int | None, str], list[Said]] = {}
    shared = {source.path for info in job.ranks.values() for source in info.sources}
    for line in job.said:
        rank = line.rank
        if line.spot.source.kind not in ("training", "unknown") or (rank is not None and rank in arrived.waiting):
            continue
        if rank is None and shared and line.spot.source.path not in shared:
            continue  # a server's or a tool's own log
        speakers.setdefault((rank, "" if rank is not None else line.spot.source.path), []).append(line)
    found = []
    for (rank, _), lines in speakers.items():
        doing = _last(rank, lines, arrived)
        if (
            doing
            and not (rank is None and _stepped_after(job, doing.last, arrived))
            and not (ASKED.search(doing.last.text) and _all_went_on(job, doing.last, arrived))
        ):
            found.append(replace(doing, shared=True) if _all_said_it(job, doing, arrived) else doing)
    return tuple(found)


def _all_said_it(job: Job, doing: Doing, arrived: Arrivals) -> bool:
    """Did most of the ranks that waited print this line too, each as often as this rank? Bars differ in their numbers."""
    if doing.rank is None or doing.bar is not None or doing.after:
        return False
    shape = _spoken(doing.last.shape)

    def often(rank: int) -> int:
        return sum(_spoken(line.shape) == shape for line in job.ranks[rank].said[-LATELY:])

    others = [rank for rank in sorted(arrived.waiting - {doing.rank}) if rank in job.ranks and job.ranks[rank].said]
    others = others[:: len(others) // ASKED_OF + 1]
    own = often(doing.rank) if doing.rank in job.ranks else 0
    return bool(others) and own > 0 and 2 * sum(often(rank) >= own for rank in others) > len(others)


def _spoken(shape: str) -> str:
    """A line's shape without the signs of its numbers."""
    return shape.replace("-", "").replace("+", "")


def _stepped_after(job: Job, line: Said, arrived: Arrivals) -> bool:
    """Did ranks go on with their steps in the same file? Then what a line without a rank speaks of was over."""
    return any(
        later.rank is not None
        and later.spot.source is line.spot.source
        and later.index > line.index
        and not _is_after(later, arrived)
        and not _of_shape(later.shape, later.text)
        for later in job.saying(_STEP)
    )


def _all_went_on(job: Job, line: Said, arrived: Arrivals) -> bool:
    """Did the job make steps after a request was repeated? Then it got through: ranks step together.

    One step may have been under way, and batches fetched ahead last for some more.
    """
    steps = Counter(
        later.rank
        for later in job.saying(_STEP)
        if before(line, later) is True and not _is_after(later, arrived) and not _of_shape(later.shape, later.text)
    )
    return max(steps.values(), default=0) > AHEAD


def _last(rank: int | None, lines: Sequence[Said], arrived: Arrivals) -> Doing | None:
    """The last activity before the first timeout, followed through to where it ends."""
    cut = [line for line in lines if not _is_after(line, arrived)]
    later = list(lines[len(cut) :])
    named = [(line, activity) for line in cut[-LATELY:] if (activity := _of_shape(line.shape, line.text))]
    if not named:
        return None
    last, activity = named[-1]
    # A training step after it means that it was over. A bar that counts to another end than those before is its own.
    place = cut.index(last)
    ends = {bar.total for line in cut[:place] if (bar := bar_of(line.text))}
    if any(
        _is_step(line.text) and not activity_of(line.text) and not _own_bar(line.text, ends)
        for line in cut[place + 1 :]
    ):
        return None
    run = [last]
    for line, other in reversed(named[:-1]):
        if other != activity:
            break
        run.append(line)
    run.reverse()
    more = [
        line for line in later if activity_of(line.text) == activity or line.shape == last.shape or bar_of(line.text)
    ]
    tail = more[-1] if more else (cut[-1] if bar_of(cut[-1].text) else last)
    bar = bar_of(tail.text) or next(
        (found for line in reversed([*cut[-3:], *more]) if (found := bar_of(line.text))), None
    )
    part = _part(tail.text)
    over = bool(_DONE.search(tail.text)) and not _RETRY.search(tail.text) and (part is None or part[0] >= part[1])
    return Doing(rank, activity, run[0], tail, len(run) + len(more), bool(more), over, bar)


_LABELS = re.compile(r"\[[^\]]*\]?|\([^)]*\)|[^A-Za-z[(]+|\b(?:INFO|rank|T|Z)\b")  # stamps and who speaks, before a bar


def _own_bar(text: str, ends: set[float]) -> bool:
    """A bar without a name, as Hugging Face's evaluation prints it."""
    bar = bar_of(text)
    return bar is not None and not _LABELS.sub("", bar.label) and bar.total not in ends


def _is_after(line: Said, arrived: Arrivals) -> bool:
    return arrived.first is not None and before(arrived.first, line) is True


_STEP = re.compile(r"\b(?:step|iter(?:ation)?|it|batch|epoch|update)s?\b[\s:=\[#]*\d+|\bloss\b|it/s|s/it", re.I)


def _is_step(text: str) -> bool:
    return bool(_STEP.search(text))
