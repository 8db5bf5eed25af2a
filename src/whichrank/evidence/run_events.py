r"""What `whichrank run` saw: events.jsonl and run.json of a run directory, version 1.

One JSON object a line, with the time by both clocks of the host. A rank's start ties rank, host and pid; a stall says
which ranks outlived what their own past allows, and whether it passed; an end says whether the interpreter ended in order
and left an exception; a mount is silent if it did not answer within the seconds that are named. Verdicts of that time are
not read: they rest on the same evidence. What another node told is in run_nodes.py.

>>> facts = list(read(b'''{"kind":"rank","wall_ns":1796064653345895877,"mono_ns":38,"rank":3,"pid":21161,"world":4,"host":"n1"}
... {"kind":"stall","wall_ns":1796064665999377797,"mono_ns":50,"ranks":[2],"waiting":[0,1,3],"all_wait":false,"phase":"data","step":30,"seconds":10.5}
... ''', Source("events.jsonl")))
>>> [(fact.kind, fact.rank, dict(fact.values)) for fact in facts][0]
('member', 3, {'world_size': 4})
>>> facts[1]["ranks"], facts[1]["phase"], facts[1]["seconds"], facts[1]["passed"]
((2,), 'data', 10.5, False)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from whichrank.evidence.run_nodes import told
from whichrank.evidence.scan import Reader, Whole, excerpt
from whichrank.facts import MOST_RANKS, Fact, Gap, Identity, Source, Spot

MOST = 16 << 20
TELLING = (4, 6, 7, 8, 9, 11)  # signals that nobody sends to end a job in order
_EVENT = re.compile(rb'\{"kind":"[a-z_]+","wall_ns":\d+,"mono_ns":\d+')
_RUN = re.compile(rb'\{\s*"whichrank_run": ?\d+,')


def sniff(head: bytes, path: str) -> bool:
    return bool(_EVENT.match(head) or _RUN.match(head)) or _own_report(head)


def _own_report(head: bytes) -> bool:
    """A report of whichrank, as JSON or Markdown, is no evidence: it would prove itself."""
    return (
        head[:1] == b"{" and b'"schema_version"' in head and b'"tool":"whichrank ' in head.replace(b": ", b":")
    ) or (b"\n- cause: `" in head and b"\n- rank: " in head)


def read(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    """Lines that are cut or damaged are left out, as the last one after a kill may be."""
    source.kind, source.readers = "scheduler", (READER.name,)
    if not _EVENT.match(data):
        if _RUN.match(data):
            yield from _run(data, source)
        return
    lines = data.split(b"\n")
    events = [(number, event) for number, line in enumerate(lines, 1) if (event := _event(line)) is not None]
    yield from _lost(events, source)
    passed = [(number, event) for number, event in events if event["kind"] == "passed"]
    for number, event in events:
        make = _FACTS.get(event["kind"])
        if make is None or (event["kind"] == "ended" and event.get("signal") not in TELLING):
            continue
        who, values, says = make(event)
        if event["kind"] == "stall":
            over = next((later["wall_ns"] for place, later in passed if place > number), None)
            values |= {"passed": over is not None} | ({"passed_ns": over} if over is not None else {})
        spot = Spot(source, number, excerpt(says))
        yield Fact(_KINDS[event["kind"]], spot, event["wall_ns"], "wall", who, None, None, values)
    yield from told(events, source)


def _lost(events: list[tuple[int, dict[str, Any]]], source: Source) -> Iterator[Gap]:
    """What the watcher asked for at a stall and did not get; the last time counts."""
    last = {event["kind"]: event for _, event in events}
    stacks = last.get("stacks", {})
    failed = stacks.get("failed")
    if why := (stacks.get("tool", "") is None and _text(stacks.get("why"))) or (
        f"py-spy: {_text(failed[0])}" if isinstance(failed, list) and failed else None
    ):
        help_ = "the right to trace processes (the same user, /proc/sys/kernel/yama/ptrace_scope 0, CAP_SYS_PTRACE)"
        yield Gap(f"{source.path}: stacks at the stall", f"{why}; the ranks' own samples stand in", help_)
    if why := _text(last.get("kernel", {}).get("why")):
        yield Gap(f"{source.path}: kernel log", why, "OOM kills, GPU and storage errors", "sudo dmesg -T")
    if missing := _ranks(last.get("records", {}).get("missing")):
        names = ", ".join(map(str, missing[:8]))
        yield Gap(f"{source.path}: Flight Recorder records", f"rank {names} did not answer when it was asked for them")


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    sound = isinstance(event, dict) and isinstance(event.get("kind"), str) and _number(event.get("wall_ns"), 1 << 62)
    return event if sound else None


def _number(value: object, below: int = 1 << 31) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below else None


def _ranks(value: object) -> tuple[int, ...]:
    return tuple(rank for rank in value if _number(rank, MOST_RANKS) is not None) if isinstance(value, list) else ()


def _seconds(value: object) -> float | None:
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9 else None
    )


def _text(value: object) -> str | None:
    return value[:400] if isinstance(value, str) and value else None


def _who(event: dict[str, Any]) -> Identity:
    return Identity(
        attempt=_number(event.get("attempt")),
        rank=_number(event.get("rank"), MOST_RANKS),
        local_rank=_number(event.get("local_rank")),
        host=_text(event.get("host")),
        pid=_number(event.get("pid")),
    )


Made = tuple[Identity, dict[str, Any], str]


def _rank(event: dict[str, Any]) -> Made:
    who, world = _who(event), _number(event.get("world"), MOST_RANKS)
    values: dict[str, Any] = {"world_size": world} if world else {}
    return who, values, f"rank {who.rank}{f' of {world}' if world else ''}, host {who.host}, pid {who.pid}"


def _stall(event: dict[str, Any]) -> Made:
    ranks, waiting = _ranks(event.get("ranks")), _ranks(event.get("waiting"))
    values: dict[str, Any] = {"ranks": ranks, "waiting": waiting, "all_wait": bool(event.get("all_wait"))}
    values |= {"phase": _text(event.get("phase")) or "unknown", "seconds": _seconds(event.get("seconds")) or 0.0}
    if (step := _number(event.get("step"), 1 << 62)) is not None:
        values["step"] = step
    names = ", ".join(map(str, ranks[:8]))
    if values["all_wait"]:
        says = f"watcher: ranks {names} have all waited in a collective for {values['seconds']:.0f} s, longer than ever"
    else:
        says = f"watcher: rank {names} in phase {values['phase']} for {values['seconds']:.0f} s, longer than its past allows"
    return Identity(), values, says


def _end(event: dict[str, Any]) -> Made:
    who = _who(event)
    values = {"in_order": bool(event.get("in_order")), "raised": bool(event.get("exception"))}
    if event.get("told"):
        values["told"] = True
    how = "in order" if values["in_order"] else "by an exception" if values["raised"] else "without a word"
    return who, values, f"watcher: rank {who.rank} (pid {who.pid}) ended {how}"


def _mount(event: dict[str, Any]) -> Made:
    who = _who(event)
    values: dict[str, Any] = {
        "mount": _text(event.get("mount")) or "?",
        "seconds": _seconds(event.get("seconds")) or 0.0,
    }
    values |= {
        name: text
        for name, text in (("type", _text(event.get("type"))), ("source", _text(event.get("source"))))
        if text
    }
    of = f", open in pid {who.pid} of rank {who.rank}" if who.rank is not None else ""
    what = f" ({values['type']})" if "type" in values else ""
    return who, values, f"watcher: {values['mount']}{what} did not answer within {values['seconds']:.0f} s{of}"


def _file_wait(event: dict[str, Any]) -> Made:
    who = _who(event)
    seconds, count = _seconds(event.get("seconds")) or 0.0, _number(event.get("bytes"), 1 << 62) or 0
    values: dict[str, Any] = {"where": _text(event.get("where")) or "?", "seconds": seconds, "bytes": count}
    values |= {name: text for name in ("mount", "type", "source") if (text := _text(event.get(name)))}
    on = f" on {values['mount']}" if "mount" in values else ""
    says = f"watcher: pid {who.pid} of rank {who.rank} is in {values['where']}, a read or write{on}: {count} bytes in {seconds:.1f} s"
    return who, values, says


def _ended(event: dict[str, Any]) -> Made:
    signal, pid = _number(event.get("signal")), _number(event.get("pid"))
    who = Identity(pid=pid)
    return (
        who,
        {"signal": signal, "exitcode": -(signal or 0)},
        f"watcher: what it had started (pid {pid}) ended by signal {signal}",
    )


_FACTS = {
    "ended": _ended,
    "rank": _rank,
    "stall": _stall,
    "rank_ended": _end,
    "mount_silent": _mount,
    "file_wait": _file_wait,
}
_KINDS = {
    "ended": "exit",
    "rank": "member",
    "stall": "stall",
    "rank_ended": "rank_end",
    "mount_silent": "mount_silent",
    "file_wait": "file_wait",
}


def _run(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    try:
        run = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield Gap(source.path, "cut or damaged: no valid JSON")
        return
    if not isinstance(run, dict) or run.get("exit_code") != 0:
        return
    ended = run.get("ended")
    at = _number(ended.get("wall_ns"), 1 << 62) if isinstance(ended, dict) else None
    spot = Spot(source, None, "whichrank run: the job ended with exit code 0")
    values = {"text": "the job ended with exit code 0", "scope": "job"}
    yield Fact("success", spot, at, "wall" if at else "none", values=values)


READER = Reader(
    "run_events",
    whole=Whole(sniff, read, most=MOST),
    title="What `whichrank run` saw: ranks that started and ended, stalls, silent mounts",
    versions="version 1 (events.jsonl, run.json)",
    collect=("whichrank run -- torchrun --nproc-per-node 8 train.py   # and give the run directory",),
)
