"""Slurm's tools with `--json`: sacct, squeue, `scontrol show job|node`, sinfo.

Formats: data_parser v0.0.38 to v0.0.43 (Slurm 22.05 to 25.05): states and flags became lists, numbers objects with `set`
and `number`, from v0.0.40 on. There are no lines to cite: the spot is the record's own words.

>>> from whichrank.facts import Source
>>> text = b\'\'\'{"jobs": [{"job_id": 7719, "name": "fit", "nodes": "cn-[01-02]", "state": {"current": ["OUT_OF_MEMORY"], "reason": "None"},
... "exit_code": {"status": ["SIGNALED"], "return_code": {"set": true, "number": 0}, "signal": {"id": {"set": true, "number": 125}}}}],
... "meta": {"slurm": {"release": "24.05.3"}}}\'\'\'
>>> state, = read(text, Source("sacct.json"))
>>> state.kind, state["job"], state["state"], state["exit"], state["hosts"]
('job_state', '7719', 'OUT_OF_MEMORY', '0:125', ['cn-01', 'cn-02'])
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from whichrank.evidence.scan import excerpt
from whichrank.evidence.slurm_tables import SICK, full_state, hosts_of
from whichrank.facts import Fact, Gap, Identity, Source, Spot

MOST = 10_000  # records of one file


_HEAD = re.compile(
    rb'\s*\{(?:\s*"meta"\s*:.*)?.*?"(?:jobs"\s*:\s*\[.*"(?:job_id|association|accrue_time|allocation_nodes)"|nodes"\s*:\s*\[.*"(?:architecture|boot_time|burstbuffer_network_address)"|sinfo"\s*:\s*\[)',
    re.S,
)


def sniff(data: bytes, name: str) -> bool:
    """An object with a list of jobs, nodes or sinfo records in Slurm's words. `meta`, which names Slurm, often comes last."""
    return data.lstrip()[:1] == b"{" and _HEAD.match(data) is not None


def read(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        yield Gap(source.path, f"Slurm's JSON, cut or damaged: {error}", "the same as a table: sacct -P -o JobID,State,ExitCode,NodeList,Reason")  # fmt: skip
        return
    if not isinstance(found, dict):
        return
    source = _of_machine(source)
    for name, of in (("jobs", _job), ("nodes", _node), ("sinfo", _sinfo)):
        records = found.get(name)
        for record in records[:MOST] if isinstance(records, list) else ():
            if isinstance(record, dict):
                yield from of(record, source)


def _of_machine(source: Source) -> Source:
    """A rank in the file's name says only who pasted it."""
    source.identity = replace(source.identity, rank=None, local_rank=None)
    return source


def number(value: Any) -> int | None:
    """A number, or `{"set": true, "infinite": false, "number": 3}`."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def words(value: Any) -> list[str]:
    """A state or flags: a word, or a list of words, or an object with the current one."""
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, str):
        return [value]
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _inner(record: dict[str, Any], *path: str) -> Any:
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _exit(value: Any) -> str | None:
    """`return code:signal`, as sacct prints it."""
    if not isinstance(value, dict):
        return str(value) if isinstance(value, int) else None
    signal = value.get("signal")
    sent = number(
        _inner(signal, "id") if isinstance(signal, dict) and "id" in signal else _inner(value, "signal", "signal_id")
    )
    code = number(value.get("return_code"))
    return None if code is None and sent is None else f"{code or 0}:{sent or 0}"


def _fact(kind: str, source: Source, at: int | None, hosts: list[str], values: dict[str, Any]) -> Fact:
    who = Identity(host=hosts[0] if len(hosts) == 1 else None)
    if len(hosts) > 1:
        values["hosts"] = hosts
    said = {name: value for name, value in values.items() if value not in (None, "", [], "None", "(null)")}
    text = ", ".join(f"{name} {value}" for name, value in said.items() if name != "hosts")
    if hosts:
        text += f" on {','.join(hosts[:8])}"
    clock = "wall" if at else "none"
    return Fact(kind, Spot(source, None, excerpt(text)), at * 10**9 if at else None, clock, who, None, None, said)  # type: ignore[arg-type]


def _job(record: dict[str, Any], source: Source) -> Iterator[Fact]:
    """A job of sacct (`state`, `time`, `steps`) or of squeue and scontrol (`job_state`, `start_time`)."""
    state = next(
        (full for word in words(record.get("state") or record.get("job_state")) if (full := full_state(word))), None
    )
    job = number(record.get("job_id"))
    if state is None or job is None:
        return
    start = number(_inner(record, "time", "start") or record.get("start_time"))
    end = number(_inner(record, "time", "end") or record.get("end_time"))
    reason = _inner(record, "state", "reason") or record.get("state_reason")
    values = {
        "job": str(job),
        "state": state,
        "exit": _exit(record.get("exit_code")),
        "reason": reason,
        "restarts": number(record.get("restart_cnt")),
        "failed_node": record.get("failed_node"),
    }
    nodes = hosts_of(record["nodes"]) if isinstance(record.get("nodes"), str) else []
    over = state not in ("RUNNING", "PENDING", "CONFIGURING", "SUSPENDED")
    yield _fact("job_state", source, (end if over else start) or None, nodes, values)
    for step in record.get("steps") or ():
        if isinstance(step, dict):
            yield from _step(step, source)


def _step(step: dict[str, Any], source: Source) -> Iterator[Fact]:
    name = _inner(step, "step", "id")
    if isinstance(name, dict):  # v0.0.38: {"job_id": 7719, "step_id": "0"}
        name = f"{name.get('job_id')}.{name.get('step_id')}"
    state = next((full for word in words(step.get("state")) if (full := full_state(word))), None)
    if state is None or not isinstance(name, str):
        return
    listed = _inner(step, "nodes", "list")
    nodes = [node for node in listed if isinstance(node, str)] if isinstance(listed, list) else hosts_of(str(_inner(step, "nodes", "range") or ""))  # fmt: skip
    values = {"job": name, "state": state, "exit": _exit(step.get("exit_code")), "max_rss": _memory(step)}
    yield _fact("job_state", source, number(_inner(step, "time", "end")) or None, nodes, values)


def _memory(step: dict[str, Any]) -> int | None:
    """Bytes: the largest task's memory."""
    for use in _inner(step, "tres", "requested", "max") or ():
        if isinstance(use, dict) and use.get("type") == "mem":
            return number(use.get("count"))
    return None


def _node(record: dict[str, Any], source: Source) -> Iterator[Fact]:
    state, name = "+".join(words(record.get("state"))), record.get("name")
    if isinstance(name, str) and SICK.search(state):
        values = {"reason": state, "message": record.get("reason")}
        yield _fact("node_event", source, number(record.get("reason_changed_at")) or None, [name], values)


def _sinfo(record: dict[str, Any], source: Source) -> Iterator[Fact]:
    state = "+".join(words(_inner(record, "node", "state")))
    nodes = _inner(record, "nodes", "nodes")
    if not SICK.search(state) or not isinstance(nodes, list):
        return
    why = record.get("reason")
    message = why.get("description") if isinstance(why, dict) else why
    for name in nodes[:MOST]:
        if isinstance(name, str):
            yield _fact("node_event", source, None, [name], {"reason": state, "message": message})
