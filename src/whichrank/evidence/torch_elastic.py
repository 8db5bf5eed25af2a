"""What torchrun prints: rendezvous, the end of each process, restarts, its summary of failures.

PyTorch 1.10 to 2.14 (torch/distributed/elastic, torch/distributed/run.py), with and without the stamp in front.

>>> from whichrank.evidence.sample import facts
>>> exit, = facts(READER, "E0505 10:05:32.334000 400 torch/distributed/elastic/multiprocessing/api.py:870] "
...                       "failed (exitcode: -9) local_rank: 5 (pid: 436) of binary: /usr/bin/python")
>>> exit.who.local_rank, exit.who.pid, exit["exitcode"], exit["signal"]
(5, 436, -9, 9)
>>> exit, = facts(READER, '''Root Cause (first observed failure):
... [5]:
...   time      : 2026-11-30_06:01:45
...   host      : box9
...   rank      : 13 (local_rank: 5)
...   exitcode  : -9 (pid: 436)  (SIGKILL)
...   error_file: <N/A>
...   traceback : Signal 9 (SIGKILL) received by PID 436
... ============================================================''')
>>> exit.who.rank, exit.who.host, exit["root"], exit["signal"], exit.at
(13, 'box9', True, 9, 1796018505.0)
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable
from typing import Any

from whichrank.evidence import error_file, stamps
from whichrank.evidence.error_file import GLOG
from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.facts import Fact, Identity

PATIENCE = 30  # lines of others that may stand between the lines of a block


def number_of(signal: object) -> object:
    """A signal's number; the text itself if it is not known.

    >>> number_of("SIGKILL"), number_of("Signals.SIGTERM"), number_of(6), number_of("?")
    (9, 15, 6, '?')
    """
    name = str(signal).removeprefix("Signals.")
    if name.isdecimal():
        return int(name)
    return int(signals.Signals[name]) if name in signals.Signals.__members__ else signal


def _tidy(values: dict[str, Any]) -> None:
    """Signals as numbers; an exit code below zero is a signal."""
    if "signal" in values:
        values["signal"] = number_of(values["signal"])
    if isinstance(code := values.get("exitcode"), int) and code < 0:
        values["signal"] = -code


_CONFIG = (
    "entrypoint|min_nodes|max_nodes|nproc_per_node|run_id|rdzv_backend|rdzv_endpoint|rdzv_configs|max_restarts"
    "|monitor_interval|log_dir|start_method|signals_to_handle|shutdown_timeout"
)
LINES = (
    Line(
        "exit",
        "failed (exitcode: ",
        r"failed \(exitcode: (?P<exitcode>-?\d+)\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid>\d+)\)",
        {"root": False, "first": True, "launcher": "torchrun"},
        _tidy,
    ),
    Line(
        "launcher_stop", "closing signal", r"Sending process (?P<pid>\d+) closing signal (?P<signal>[\w.]+)", tidy=_tidy
    ),
    Line(
        "launcher_kill",
        "forcefully exiting via",
        r"Unable to shutdown process (?P<pid>\d+) via [\w.]+, forcefully exiting via (?P<signal>[\w.]+)",
        tidy=_tidy,
    ),
    Line(
        "restart",
        "attempts left",
        r"Worker group (?P<state>[A-Z]+)\. (?P<left>\d+)/(?P<of>\d+) attempts left; +will restart worker group",
        {"launcher": "torchrun"},
    ),
    Line(
        "restart",
        "will restart worker group",
        r"Detected (?P<new_nodes>\d+) new nodes from group_rank=\d+; will restart worker group",
        {"launcher": "torchrun"},
    ),
    Line(
        "success",
        ("orker group successfully finished", "orker group finished ("),
        r"(?P<text>worker group successfully finished|[Ll]ocal worker group finished \((?:WorkerState\.)?SUCCEEDED\))",
        {"scope": "job", "launcher": "torchrun"},
    ),
    Line(
        "signal_received",
        "death signal",
        r"Received (?P<signal>[\w.]+) death signal, shutting down workers",
        {"launcher": "torchrun"},
        _tidy,
    ),
    Line(
        "signal_received",
        "SignalException",
        r"SignalException: Process (?P<pid>\d+) got signal: (?P<signal>\d+)",
        {"launcher": "torchrun"},
        _tidy,
    ),
    Line(
        "config",
        " : ",
        rf"(?:^|api\.py:\d+\])\s*(?P<name>{_CONFIG})\s+: (?P<value>\S(?:.*\S)?)\s*$",
        {"launcher": "torchrun"},
    ),
)


class Summary:
    """The block of failures: `Failures:` and `Root Cause (first observed failure):`, an entry for each process."""

    anchors = ("Failures:", "Root Cause (first observed failure)")

    def start(self, row: Row) -> State | None:
        text = _plain(row)
        return (
            Failures(root=text.startswith("Root")) if text == "Failures:" or text.startswith("Root Cause (") else None
        )


def _plain(row: Row) -> str:
    return GLOG.sub("", row.text).strip()


class Failures:
    _entry = re.compile(r"\[\d+\]:$")
    _field = re.compile(r"(?P<name>time|host|rank|exitcode|error_file|traceback) *: (?P<value>.*)$")
    _ends = re.compile(r"={20,}$")
    _frame = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<func>\S+)$')
    _library = re.compile(r"/(?:site|dist)-packages/|/lib/python3")

    def __init__(self, root: bool) -> None:
        self.root = root
        self.entries: list[tuple[bool, Row, dict[str, str]]] = []
        self.patience = PATIENCE
        self.closed = False
        self.in_traceback = False

    def take(self, row: Row) -> bool | None:
        text = _plain(row)
        if self.closed or text == "Failures:":
            return False
        if text.startswith("Root Cause ("):
            self.root = True
        elif self._entry.match(text):
            self.entries.append((self.root, row, {}))
        elif self.entries and (match := self._field.match(text)):
            return self._add(row, match["name"], match["value"].strip())
        elif self._ends.match(text):
            self.closed = True
        elif self.in_traceback and row.text.startswith("  "):
            self._more(text, row)
        elif not (re.match(r"-{20,}$", text) or text == "<NO_OTHER_FAILURES>"):
            self.patience -= 1
            return None if self.patience > 0 else False
        self.patience = PATIENCE
        self.in_traceback = self.in_traceback and text not in ("", "Failures:") and not self._entry.match(text)
        return True

    def _add(self, row: Row, name: str, value: str) -> bool:
        root, _, fields = self.entries[-1]
        if name in fields:  # the entry's first line was lost
            fields = {}
            self.entries.append((root, row, fields))
        self.patience = PATIENCE
        fields[name] = value
        if name == "exitcode":
            self.entries[-1] = (root, row, fields)
        self.in_traceback = name == "traceback"
        return True

    def _more(self, text: str, row: Row) -> None:
        """The traceback's last line, `Type: message`, is what the process died of; the last frame of the user's is where."""
        if (frame := self._frame.match(text)) and not self._library.search(frame["file"]):
            self.entries[-1][2]["site"] = f"{frame['file']}:{frame['line']} {frame['func']}"
        if re.match(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)?: ?", text):
            root, _, fields = self.entries[-1]
            fields["error"] = text
            self.entries[-1] = (root, row, fields)  # the line that tells most of this end

    def facts(self) -> Iterable[Fact]:
        for root, row, fields in self.entries:
            code = re.match(r"(-?\d+)(?: \(pid: (\d+)\))?", fields.get("exitcode", ""))
            rank = re.match(r"(\d+)(?: \(local_rank: (\d+)\))?", fields.get("rank", ""))
            if not code and not rank:
                continue
            who = Identity(
                rank=_int(rank, 1), local_rank=_int(rank, 2), host=fields.get("host") or None, pid=_int(code, 2)
            ).filled(row.who)
            values: dict[str, Any] = {"root": root, "launcher": "torchrun"}
            if code:
                values["exitcode"] = int(code[1])
            for name in ("error_file", "error", "site"):
                if fields.get(name) and fields[name] != "<N/A>":
                    values[name] = fields[name]
            _tidy(values)
            at = stamps.find(fields.get("time", ""))
            yield Fact(
                "exit", row.spot(), at[0] if at else row.at_ns, "wall" if at else row.clock, who, None, None, values
            )


def _int(match: re.Match[str] | None, group: int) -> int | None:
    return int(match[group]) if match and match[group] is not None else None


class Rendezvous:
    """`Rendezvous complete for workers. Result:` and the `name=value` lines after it.

    >>> from whichrank.evidence.sample import facts
    >>> done, = facts(READER, '''INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:
    ...   restart_count=1
    ...   master_addr=nd-a
    ...   master_port=41237
    ...   group_rank=1
    ...   group_world_size=2
    ...   local_ranks=[0, 1]
    ...   global_ranks=[2, 3]
    ...   global_world_sizes=[4, 4]''')
    >>> done["restart_count"], done["group_rank"], done["global_ranks"], done["world_size"]
    (1, 1, [2, 3], 4)
    """

    anchors = ("Rendezvous complete for workers",)

    def start(self, row: Row) -> State | None:
        return Agreed(row) if "Rendezvous complete for workers" in row.text else None


class Agreed:
    _field = re.compile(
        r"(?P<name>restart_count|master_addr|master_port|group_rank|group_world_size|local_ranks|role_ranks|global_ranks"
        r"|role_world_sizes|global_world_sizes|event_log_handler)=(?P<value>.*)$"
    )

    def __init__(self, row: Row) -> None:
        self.row = self.proof = row
        self.pid = match["pid"] if (match := GLOG.match(row.text)) else None
        self.values: dict[str, Any] = {"launcher": "torchrun"}
        self.patience = PATIENCE

    def take(self, row: Row) -> bool | None:
        if "Rendezvous complete for workers" in row.text:
            return False
        match = self._field.match(_plain(row))
        speaker = GLOG.match(row.text)
        if not match or (speaker and self.pid and speaker["pid"] != self.pid) or match["name"] in self.values:
            self.patience -= 1
            return None if self.patience > 0 else False
        self.patience = PATIENCE
        name, value = match["name"], match["value"].strip()
        if name.startswith(("local_", "role_", "global_")):
            self.values[name] = [int(found) for found in re.findall(r"\d+", value)]
        else:
            self.values[name] = int(value) if value.isdecimal() else value
        if name == "global_ranks":
            self.proof = row
        return True

    def facts(self) -> Iterable[Fact]:
        values = {name: value for name, value in self.values.items() if not name.startswith(("role_", "event_"))}
        if sizes := values.pop("global_world_sizes", None):
            values["world_size"] = sizes[0]
        pid = Identity(pid=int(self.pid)) if self.pid else Identity()
        yield self.row.fact("rendezvous_complete", who=pid, spot=self.proof.spot(), **values)


READER = Reader(
    "torch_elastic",
    LINES,
    (Summary(), Rendezvous(), error_file.ErrorFile()),
    title="torchrun: rendezvous, exits, restarts, its summary of failures",
    versions="PyTorch 1.10 to 2.14",
    collect=("torchrun --log-dir LOGS --redirects 3 …", "kubectl logs POD --timestamps"),
)
