"""How it is said: the sentence, the proofs, and texts with the user's own hosts and ranks in them."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.causes import Cause
from whichrank.causes.base import RECORD, Clue
from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.findings.exits import FirstSeen
from whichrank.job.clocks import span
from whichrank.job.model import Job
from whichrank.model import Check, Proof, Weighed
from whichrank.ranges import several
from whichrank.verdict.scales import Score
from whichrank.verdict.who import Accused, culprit


def sentence(job: Job, found: Findings, score: Score, accused: Accused) -> str:
    """ "Rank 17 on node-03 was killed by … 29 min before the first timeout; 63 ranks waited in ALLREDUCE #1842." """
    cause = score.cause
    if cause.id == "none":
        return "No hang here: " + (score.support[0].says if score.support else "nothing went wrong") + "."
    where = (
        f" on {accused.hosts[0]}"
        if len(accused.hosts) == 1
        else f" on {', '.join(accused.hosts[:4])}"
        if accused.hosts
        else ""
    )
    if not cause.blames_ranks:
        verb = cause.verb.format(host=accused.hosts[0] if accused.hosts else "some ranks")
        text = f"{verb[0].upper()}{verb[1:]}" + (
            "" if "{host}" in cause.verb or not accused.hosts else f" ({', '.join(accused.hosts[:4])})"
        )
    else:
        who = (
            several(accused.ranks).capitalize()
            if accused.ranks
            else ("A process" if cause.id == "exception" else "Some rank")
        )
        text = f"{who}{where} {cause.verb}"
        if len(accused.ranks) > 1 and text.count(" was "):
            text = text.replace(" was ", " were ", 1)
    detail = score.support[0].says if score.support else ""
    if detail:
        text += f": {detail}"
    waiting = found.arrived.waiting - set(accused.ranks)
    main = found.arrived.main
    if main is not None and waiting:
        place = f"{main.op or 'the collective'}{f' #{main.seq}' if main.seq is not None else ''}"
        many = f"{len(waiting)} {'rank' if len(waiting) == 1 else 'ranks'}"
        there = len(found.told.traced.in_main - set(accused.ranks)) if found.told is not None else len(waiting)
        text += f"; {many} waited in {place}" if there >= len(waiting) else f"; {many} waited, {there} in {place}"
        if main.timeout_s:
            text += f" for {span(main.timeout_s)}"
    return text + "."


def undecided_sentence(job: Job, found: Findings, accused: Accused, best: Score) -> str:
    main = found.arrived.main
    parts = []
    told = found.hung
    if told is not None and told.traced.culprits and set(told.traced.culprits) == set(accused.ranks):
        where = f" on {', '.join(accused.hosts[:3])}" if accused.hosts else ""
        parts.append(f"{several(accused.ranks).capitalize()}{where} {told.why}; why is not in the evidence")
    elif told is not None and not accused.ranks:
        parts.append(f"{told.why[:1].upper()}{told.why[1:]}")
    elif found.raised is not None:
        parts.append(f"{found.raised.says[:1].upper()}{found.raised.says[1:]}; why is not in the evidence")
    elif (seen := found.first_seen) is not None and (seen.victim or accused.ranks == (seen.fact.rank,)):
        parts.append(_first_seen(seen))
    elif accused.ranks:
        where = f" on {', '.join(accused.hosts[:3])}" if accused.hosts else ""
        parts.append(
            f"{several(accused.ranks).capitalize()}{where} did not reach the collective; why is not in the evidence"
        )
    elif found.sides is not None:
        parties = "; ".join(f"{several(ranks)} in {wait.op} #{wait.seq}" for ranks, wait in found.sides.parties[:3])
        parts.append(f"The ranks wait in different collectives ({parties}); which side is wrong is not in the evidence")
    elif main is not None:
        who = several(sorted(found.arrived.waiting)).capitalize() if found.arrived.waiting else "A rank"
        parts.append(
            f"{who} waited in {main.op or 'a collective'}{f' #{main.seq}' if main.seq is not None else ''} for ranks that are not in the evidence"
            if found.arrived.absent or not job.world_told
            else f"{who} all waited in {main.op or 'a collective'}; nothing shows what held it"
        )
    elif best.cause.id == "none" and (behind := next((clue for clue in best.contrary if clue.ranks), None)):
        parts.append(
            f"{behind.says[:1].upper()}{behind.says[1:]}; nothing has timed out yet, and why it lags is not in the evidence"
        )
    elif best.support:
        parts.append(f"Something is wrong ({best.support[0].says}), and the evidence cannot say why")
    else:
        parts.append("The evidence does not show what happened")
    return parts[0] + "."


def _first_seen(seen: FirstSeen) -> str:
    """A launcher's "root cause" that nothing else explains."""
    host = f" on {seen.fact.who.host}" if seen.fact.who.host else ""
    text = f"Rank {seen.fact.rank}{host} is the first that torchrun saw end, by {seen.how}"
    if seen.victim:
        return f"{text}: so ends a rank that waited for another one, so it need not be at fault; who held it is not in the evidence"
    return f"{text}; why, and whether another failed before it, is not in the evidence"


def stopgap(cause: Cause) -> str:
    """The stopgap, and on a line of its own what not to do."""
    return "\n".join(part for part in (cause.stopgap, f"Don't {cause.dont}." if cause.dont else "") if part)


def next_checks(job: Job, found: Findings, accused: Accused) -> list[Check]:
    who = several(accused.ranks) if accused.ranks else "the ranks that printed no timeout"
    if not accused.ranks and not found.arrived.absent:
        who = "one rank of each side" if found.sides is not None else "a few ranks"
    told = found.hung
    if told is not None and not accused.ranks and told.traced.candidates:
        who = several(told.traced.candidates)
    stack = Check(f"the stack of {who} during the hang", "py-spy dump --nonblocking --pid PID", "{host}")
    output = Check(f"the output and exit code of {who} (torchrun --log-dir keeps one file a rank)")
    kernel = Check(
        "the hosts' kernel log at that time",
        "dmesg -T | grep -iE 'killed process|Xid|not responding|blocked for|link'",
        "{host}",
    )
    if told is None:
        dumps = Check(
            "the next time: Flight Recorder dumps of all ranks (set this, then give whichrank the files)",
            f"export {RECORD}",
        )
        return [stack, output, kernel, dumps]
    gpu = Check(f"the GPUs of {who}: errors, Xid, clocks", "nvidia-smi -q; dmesg -T | grep -i xid", "{host}")
    if told.traced.mechanism in ("gpu_hang", "network", "undecided"):
        paths = Check(
            "the links between them: counters twice, a minute apart", "ethtool -S IFACE; perfquery -x", "{host}"
        )
        return [gpu, kernel, stack] if told.traced.mechanism == "gpu_hang" else [gpu, paths, kernel]
    return [stack, output, kernel]


def proof(says: str, item: Fact | Said) -> Proof:
    own = item["says"] if isinstance(item, Fact) else None  # an entry of a dump says for itself what it shows
    return Proof(str(own) if own else says, item.spot.source.path, item.spot.line, item.spot.excerpt)


def proofs(clues: Sequence[Clue]) -> tuple[Proof, ...]:
    """One proof a line; clues without any line say nothing."""
    found: dict[tuple[str, int | None], Proof] = {}
    for clue in clues:
        for item in clue.facts:
            found.setdefault((item.spot.source.path, item.spot.line), proof(clue.says, item))
    return tuple(found.values())[:12]


def weighed(score: Score, confidence: float) -> Weighed:
    clues = tuple(
        (round(clue.weight, 2), proof(clue.says, clue.facts[0]) if clue.facts else Proof(clue.says, "", None, ""))
        for clue in sorted(score.clues, key=lambda clue: -abs(clue.weight))
    )
    return Weighed(score.cause.id, round(confidence, 4), round(score.total, 2), clues)


def fill(text: str, job: Job, accused: Accused, score: Score | None = None) -> str:
    """Put the user's own hosts, ranks and pids into a text."""
    first = culprit(job, accused.ranks[0]) if accused.ranks else None
    site = next(
        (
            str(fact["site"])
            for clue in (score.support if score else [])
            for fact in clue.facts
            if isinstance(fact, Fact) and fact["site"]
        ),
        "the line that raised it",
    )
    values = {
        "{host}": (accused.hosts[0] if accused.hosts else None) or (first.host if first else None) or "HOST",
        "{rank}": str(first.rank) if first and first.rank is not None else "RANK",
        "{pid}": str(first.pid) if first and first.pid else "PID",
        "{site}": site,
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def filled(check: Check, job: Job, accused: Accused) -> Check:
    where = fill(check.where, job, accused) if check.where else None
    return Check(fill(check.says, job, accused), fill(check.command, job, accused), None if where == "HOST" else where)
