"""What the straggler causes share: who was busy with what, or stood where, while the others waited."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes.base import Clue, Kind, host, one, waited
from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.findings.activity import Activity, Doing
from whichrank.findings.hints import Topic
from whichrank.findings.laggards import Laggard
from whichrank.findings.retries import ASKED, asked_for
from whichrank.findings.stacks import Stack
from whichrank.job.clocks import span
from whichrank.job.model import Job
from whichrank.ranges import several

WORK: tuple[Activity, ...] = (
    "checkpoint",
    "loading",
    "evaluation",
    "upload",
    "preprocess",
    "compile",
    "generate",
    "data",
)  # all that may rightly take longer than a limit


ALONE: tuple[Activity, ...] = ("evaluation", "upload", "preprocess", "cleanup")  # what one rank does for all


def busy(job: Job, found: Findings, *activities: Activity) -> list[tuple[Doing, tuple[int, ...]]]:
    """Activities of these kinds, with the ranks they belong to.

    A line that names no rank belongs to the ranks that did not wait, if they are few: usually rank 0, which prints
    for all. Without any wait in the evidence nobody is accused by what was printed last.
    """
    arrived = found.arrived
    suspects = arrived.suspects
    # Who says that it is through with it was on its way into the collective: what nobody signed is not its own.
    left = suspects - {doing.rank for doing in found.doing if doing.rank is not None and doing.finished} or suspects
    dead = {failure.rank for failure in found.failed.roots if failure.kind == "killed" and failure.rank is not None}
    result: list[tuple[Doing, tuple[int, ...]]] = []
    for doing in found.doing:
        if doing.rank in dead:
            continue  # it came to no end, but not for being slow
        if doing.activity not in activities or (doing.shared and (doing.finished or doing.activity in ALONE)):
            continue  # a line that all print is no rank's own work
        if not arrived.waits and (found.ending.well or found.ending.alive):
            continue  # it came to its end, and the job went on
        if doing.rank is not None:
            if not arrived.waits or doing.rank in suspects:
                result.append((doing, (doing.rank,)))
        elif (
            arrived.waits
            and left
            and len(left) <= max(1, len(job.everyone()) // 2)
            and not any(other.rank is not None for other in found.doing if other.rank in left)
        ):
            result.append((doing, tuple(sorted(left)) if len(left) == 1 or 0 not in left else (0,)))
    if any(not doing.finished for doing, _ in result):
        result = [(doing, ranks) for doing, ranks in result if not doing.finished]
    if not arrived.waits and result:
        speakers = {doing.rank for doing in found.doing} | {rank for rank, info in job.ranks.items() if info.said}
        if 2 * len({rank for _, ranks in result for rank in ranks}) > len(speakers - {None}):
            return []  # what most ranks said last tells nobody apart
    return result


def together(found: list[tuple[Doing, tuple[int, ...]]]) -> tuple[list[Doing], tuple[int, ...]]:
    """All ranks that do the same thing."""
    return [doing for doing, _ in found], tuple(sorted({rank for _, ranks in found for rank in ranks}))


def idle_reader(job: Job, found: Findings, *kinds: str) -> list[Stack]:
    """Main threads of these classes: of ranks outside the collective, or of all ranks if all are alike."""
    if found.stacks.odd:
        return [stack for stack in found.stacks.odd if stack.kind in kinds]
    lone = [stack for stack in found.stacks.mains if stack.kind in kinds]
    if len(found.stacks.mains) == 1 or any(stack.rank in found.arrived.suspects for stack in lone):
        return [stack for stack in lone if not found.arrived.waiting or stack.rank not in found.arrived.waiting]
    return []


_UPLOAD = re.compile(
    r"upload|push|\bhub\b|huggingface_hub|boto|s3transfer|s3fs|gcsfs|wandb|mlflow|artifact|rclone|google/(?:cloud|resumable)",
    re.I,
)


def uploads(stack: Stack) -> bool:
    """Is this network request an upload, rather than a question to a server that does not answer?"""
    return any(_UPLOAD.search(str(frame)) for frame in stack.fact["frames"] or ())


def after_words(found: Findings, doing: Doing) -> str:
    """ "still at it after the timeout" where the evidence shows it."""
    if doing.finished:
        return ""  # the words themselves say so
    return ", and went on after the timeout" if doing.after else ""


def last_words(doing: Doing) -> str:
    """ "was at 27 % of Tokenising, with about 28 min left", or what it printed last."""
    if doing.lines > 1 and ASKED.search(doing.last.text):
        what = asked_for(doing.last.text)
        return f"asked {doing.lines} times in vain{f' for {what}' if what else ' for its data'}"
    bar = doing.bar
    title = doing.last.text.partition(":")[0].strip()
    if bar is None or not bar.total or "%|" not in doing.last.text or not 1 < len(title) < 40 or "%" in title:
        return f"last printed {quoted(doing.last)}"
    left = f", with about {span(bar.left_s)} left" if bar.left_s else ""
    return f"was at {100 * bar.done / bar.total:.0f} % of {title}{left}"


def quoted(line: Said) -> str:
    """What a line says, without its stamp and logger, short enough for a sentence."""
    text = _PREFIX.sub("", line.text.strip()).strip(" :|-")
    return f'"{text[:57]}…"' if len(text) > 60 else f'"{text}"'


_PREFIX = re.compile(
    r"^(?:\[[^\]]{0,40}\] ?|\d{4}-\d\d-\d\d[T ]\S+ ?|\d\d:\d\d:\d\d\S* ?|(?:INFO|DEBUG|WARNING|ERROR)\b[ :]*|[- |]+|[\w.]+:\d+ ?|[\w.]+(?:\.\w+)+ - )+"
)


def talked(job: Job, found: Findings, weight: float, *activities: Activity) -> Iterator[Clue]:
    """The clue of an activity: the first and the last line of each busy rank."""
    doing, ranks = together(busy(job, found, *activities))
    if not doing:
        return
    best = max(doing, key=lambda d: d.lines)
    shown = tuple(
        line
        for d in sorted(doing, key=lambda d: -d.lines)[:2]
        for line in ((d.last, d.first) if d.first is not d.last else (d.last,))
    )
    kind: Kind = "talk"
    extra = 0.8 if best.after else 0.0
    sure = certainty(job, found, ranks, any(d.after for d in doing))
    yield Clue(
        weight + extra,
        kind,
        f"{several(ranks)} {last_words(best)}{after_words(found, best)}",
        shown,
        ranks,
        sure_of_ranks=sure,
    )
    if ranks and set(ranks) == set(found.arrived.suspects) and not found.arrived.lossy:
        yield Clue(
            1.5,
            "absence",
            f"{several(ranks)} printed no timeout, all others did",
            waited(found),
            ranks,
            sure_of_ranks=sure,
        )


def stood(job: Job, found: Findings, stacks: list[Stack], weight: float, where: str) -> Clue:
    """The clue of stacks: `where` the main threads of these ranks stand while the others wait."""
    ranks = tuple(sorted({stack.rank for stack in stacks if stack.rank is not None}))
    return Clue(
        weight,
        "stack",
        f"the main thread of {several(ranks)} {where}",
        tuple(stack.fact for stack in stacks[:2]),
        ranks,
        host(job.host_of(ranks[0]) if ranks else None),
        sure_of_ranks=0.95 if found.stacks.odd else 0.85,
    )


def phased(job: Job, found: Findings, weight: float, *phases: str) -> Iterator[Clue]:
    """The clue of the recorders: in which phase these ranks were while the others waited."""
    stood = found.recorded.of(*phases) if found.recorded is not None else ()
    if stood:
        ranks = tuple(sorted(fact.rank for fact in stood if fact.rank is not None))
        says = f"the recorder of {several(ranks)} says: {_PHASES.get(stood[0]['name'], 'elsewhere')} for {span(float(stood[0]['seconds'] or 0))}"
        yield Clue(weight, "recorder", says, stood[:2], ranks, host(job.host_of(ranks[0])), sure_of_ranks=0.95)


SILENT = 5.0  # seconds; a recorder's thread wakes each second
APART = 20.0  # the same between two hosts: their files are not copied at one moment


def silent_recorder(job: Job, rank: int | None, weight: float, says: str) -> Iterator[Clue]:
    """The recorder of this rank gave no sign of life any more while the others' went on. `says` has a place: seconds."""
    last = {fact.rank: fact for fact in job.of("phase") if fact.rank is not None}
    heard = {who: (fact.at_ns or 0) / 1e9 + float(fact["seconds"] or 0) for who, fact in last.items()}
    if rank in heard and len(heard) > 1:
        beside = [at for other, at in heard.items() if other != rank and job.host_of(other) == job.host_of(rank)]
        silent = max(beside or (at for other, at in heard.items() if other != rank)) - heard[rank]
        if silent > (SILENT if beside else APART):
            told = says.format(seconds=span(silent))
            yield Clue(weight, "recorder", told, (last[rank],), one(rank), host(job.host_of(rank)), sure_of_ranks=0.93)


CRAWL = 1 << 20  # bytes a second: less than any storage gives that works


def held_by_storage(job: Job) -> list[Fact]:
    """Processes of few ranks that the kernel held in a read or write while hardly anything went through."""
    waits = [fact for fact in job.of("file_wait") if int(fact["bytes"]) < CRAWL * float(fact["seconds"] or 1)]
    ranks = {fact.rank for fact in waits}
    return waits if 2 * len(ranks) <= max(2, len(job.everyone())) else []


def storage_beneath(job: Job, found: Findings) -> Iterator[Clue]:
    """Against a straggler's own slowness: what it does waits for storage that hardly answers."""
    if waits := held_by_storage(job):
        fact = waits[-1]
        says = (
            f"the kernel holds pid {fact.who.pid} in a read or write: {fact['bytes']} bytes in {fact['seconds']:.1f} s"
        )
        yield Clue(-6.0, "kernel", says, (fact,))
    elif found.storage_waits and not found.storage_waits[0].writes:
        yield Clue(-1.0, "kernel", found.storage_waits[0].says, (found.storage_waits[0].fact,))


_PHASES = {
    "data": "waiting for a batch",
    "compute": "in its own code between two collectives",
    "optimizer": "in the optimizer's step",
    "checkpoint": "in a checkpoint",
    "evaluation": "evaluating",
    "compile": "compiling",
    "unknown": "in code outside the training loop",
    "own": "in a phase of its own",
}


def behind(job: Job, slow: Laggard) -> Clue:
    """The clue of a rank whose own times are far above its peers'."""
    return Clue(
        4.0,
        "talk",
        f"rank {slow.rank} needs {slow.own_s:.3g} s for {slow.field}, the next slowest {slow.others_s:.3g} s",
        (slow.line, slow.usual),
        one(slow.rank),
        host(job.host_of(slow.rank)),
        sure_of_ranks=0.9,
    )


def hinted(job: Job, found: Findings, *topics: Topic) -> Iterator[Clue]:
    """The clue of the framework's own detectors: weak where they only say who was slow."""
    for hint in found.hints:
        if hint.topic in topics and not (found.ending.well or found.ending.alive):
            yield Clue(
                3.5 if hint.located else 0.7,
                "hint",
                f"{several(hint.ranks)}: {hint.says}" if hint.located else hint.says,
                hint.facts,
                hint.ranks,
                host(job.host_of(hint.ranks[0]) if len(hint.ranks) == 1 else None),
                sure_of_ranks=0.7 if hint.located else 0.5,
            )


def certainty(job: Job, found: Findings, ranks: tuple[int, ...], after: bool) -> float:
    """How sure it is that just these ranks were late: one rank, or all of a host; less where lines are missing."""
    if not ranks or set(ranks) != set(found.arrived.suspects):
        return 0.74
    hosts = {job.host_of(rank) for rank in ranks}
    whole = len(hosts) == 1 and None not in hosts and set(job.ranks_on(next(iter(hosts)))) == set(ranks)
    if found.arrived.lossy:
        return 0.74 if len(ranks) == 1 or whole else 0.6
    return 0.94 if len(ranks) == 1 or whole or after else 0.74
