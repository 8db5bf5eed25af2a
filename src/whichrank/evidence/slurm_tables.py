"""Tables of sacct, squeue and sinfo, records of scontrol; lists of nodes and tasks as Slurm writes them.

>>> numbers("4,6-7"), hosts_of("cn-[09-11,17],gpu3")
([4, 6, 7], ['cn-09', 'cn-10', 'cn-11', 'cn-17', 'gpu3'])
>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> facts(Reader("x", (), (Sacct(),)), '''JobID|JobName|State|ExitCode|NodeList
... 640423|train|OUT_OF_MEMORY|0:125|cn-[0402-0403]''')[0].values
{'job': '640423', 'state': 'OUT_OF_MEMORY', 'exit': '0:125', 'job_name': 'train', 'hosts': ['cn-0402', 'cn-0403']}
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence.scan import Row, State
from whichrank.facts import Fact, Identity

STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "PREEMPTED",
    "REQUEUED", "REQUEUE_HOLD", "RESIZING", "REVOKED", "RUNNING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED", "TIMEOUT",
)  # fmt: skip
_SHORT = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING", "CG": "COMPLETING", "DL": "DEADLINE", "F": "FAILED",
    "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING", "RQ": "REQUEUED", "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT", "ST": "STOPPED", "TO": "TIMEOUT",
}  # fmt: skip
SICK = re.compile(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|\*|ERROR|UNKNOWN|REBOOT|POWER")
_JOB = re.compile(r"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?(?:\.[\w+]+)?$")
STRAY = 20  # unrelated lines in a row after which a table is over
MANY = 100_000  # numbers a list may stand for


def numbers(text: str) -> list[int]:
    """`4,6-7` -> 4, 6, 7. Empty if it stands for absurdly many."""
    found: list[int] = []
    for part in text.strip(",").split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue
        if int(last or first) - int(first) > MANY:
            return []
        found.extend(range(int(first), int(last or first) + 1))
    return found


def hosts_of(text: str) -> list[str]:
    """A list of nodes such as cn-[09-11],gpu3, written out. Leading zeros are kept."""
    found: list[str] = []
    for match in re.finditer(r"([^,\[\]\s]+)(?:\[([\d,-]+)\]([^,\[\]\s]*))?", text):
        if match[2] is None:
            found.append(match[1])
            continue
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            if first.isdecimal() and (not last or last.isdecimal()) and int(last or first) - int(first) < MANY:
                found.extend(
                    f"{match[1]}{number:0{len(first)}d}{match[3]}"
                    for number in range(int(first), int(last or first) + 1)
                )
    return [name for name in found if name not in ("None", "assigned", "(null)")]


def full_state(text: str) -> str | None:
    """`OUT_OF_ME+`, `CANCELLED by 1000`, `PR` -> the state's full name."""
    word = text.strip().split(" ")[0] if text.strip() else ""
    if word in _SHORT:
        return _SHORT[word]
    stem = word.rstrip("+*")
    if stem in STATES:
        return stem
    fits = [state for state in STATES if word.endswith("+") and state.startswith(stem)]
    return fits[0] if fits else None


def placed(row: Row, kind: str, nodes: str | None, **values: Any) -> Fact:
    """A fact about one host, or about no single one where there are several."""
    hosts = hosts_of(nodes) if nodes else []
    if len(hosts) > 1:
        values["hosts"] = hosts
    return row.fact(
        kind,
        who=Identity(host=hosts[0] if len(hosts) == 1 else None),
        **{name: value for name, value in values.items() if value},
    )


class Sacct:
    """`sacct`, padded or with `-p`: a header that names JobID and State, perhaps a ruler of dashes, rows."""

    anchors = ("JobID",)

    def start(self, row: Row) -> State | None:
        if "JobID" not in row.text or "State" not in row.text or "=" in row.text:
            return None
        return _SacctRows(row.text)


class _SacctRows:
    def __init__(self, header: str) -> None:
        self.barred = "|" in header
        self.header = header
        self.names = [name.strip() for name in header.split("|")] if self.barred else header.split()
        self.spans: list[tuple[int, int]] = []
        self.found: list[Fact] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        text = row.text.rstrip()
        if not self.barred and re.fullmatch(r"[- ]+", text) and "--" in text:
            self.spans = [match.span() for match in re.finditer(r"-+", text)]
            return True
        record = dict(zip(self.names, self._cells(text), strict=False))
        job, state = record.get("JobID", ""), full_state(record.get("State", ""))
        if not _JOB.match(job) or not state:
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        self.found.append(
            placed(
                row,
                "job_state",
                record.get("NodeList"),
                job=job,
                state=state,
                exit=record.get("ExitCode"),
                max_rss=record.get("MaxRSS"),
                start=record.get("Start"),
                end=record.get("End"),
                reason=record.get("Reason"),
                job_name=record.get("JobName"),
                user=record.get("User"),
                account=record.get("Account"),
                partition=record.get("Partition"),
            )
        )
        return True

    def _cells(self, text: str) -> list[str]:
        if self.barred:
            return [cell.strip() for cell in text.split("|")]
        words = text.split()
        if not self.spans or len(words) == len(self.names):
            return words
        # A padded table is aligned to its ruler; only the last column may be longer.
        return [
            text[first : last if index + 1 < len(self.spans) else None].strip()
            for index, (first, last) in enumerate(self.spans)
        ]

    def facts(self) -> Iterable[Fact]:
        return self.found


class SacctBare:
    """`sacct -n -P`: rows of the default columns without their header."""

    anchors = tuple(f"|{state}" for state in STATES if state not in ("RUNNING", "PENDING"))
    row = re.compile(
        r"^(?P<job>\d+(?:_\d+)?(?:\.\w+)?)\|(?:[^|]*\|){1,8}?(?P<state>[A-Z_]{4,}(?: by \d+)?)\|(?P<exit>\d+:\d+)(?:\||$)"
    )

    def start(self, row: Row) -> State | None:
        if not self.row.match(row.text):
            return None
        state = _BareRows()
        state.take(row)
        return state


class _BareRows:
    def __init__(self) -> None:
        self.found: list[Fact] = []

    def take(self, row: Row) -> bool | None:
        match = SacctBare.row.match(row.text)
        state = full_state(match["state"]) if match else None
        if match is None or state is None:
            return False
        self.found.append(placed(row, "job_state", None, job=match["job"], state=state, exit=match["exit"]))
        return True

    def facts(self) -> Iterable[Fact]:
        return self.found


class Squeue:
    """`squeue`: JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON).

    >>> from whichrank.evidence.sample import facts
    >>> from whichrank.evidence.scan import Reader
    >>> text = '''   JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
    ...    70021       gpu   lm-2b7    jkent  R      16:42      1 gq-3'''
    >>> fact, = facts(Reader("x", (), (Squeue(),)), text)
    >>> fact["state"], fact.who.host
    ('RUNNING', 'gq-3')
    """

    anchors = ("JOBID",)

    def start(self, row: Row) -> State | None:
        names = row.text.split()
        if "JOBID" not in names or not {"ST", "STATE"} & set(names):
            return None
        return _SqueueRows(names)


class _SqueueRows:
    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.found: list[Fact] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        cells = row.text.split(None, len(self.names) - 1)
        record = dict(zip(self.names, cells, strict=False))
        state = full_state(record.get("ST") or record.get("STATE") or "")
        if len(cells) < len(self.names) - 1 or not _JOB.match(record["JOBID"]) or not state:
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        nodes = record.get("NODELIST(REASON)") or record.get("NODELIST") or ""
        reason = nodes.strip("()") if nodes.startswith("(") else None
        self.found.append(
            placed(
                row,
                "job_state",
                None if reason else nodes,
                job=record["JOBID"],
                state=state,
                reason=reason,
                ran=record.get("TIME"),
                job_name=record.get("NAME"),
                user=record.get("USER"),
                partition=record.get("PARTITION"),
            )
        )
        return True

    def facts(self) -> Iterable[Fact]:
        return self.found


class Sinfo:
    """`sinfo -R`: REASON USER TIMESTAMP NODELIST."""

    anchors = ("NODELIST",)

    def start(self, row: Row) -> State | None:
        return _SinfoRows() if re.match(r"\s*REASON\s+USER\s+TIMESTAMP\s+NODELIST\s*$", row.text) else None


class _SinfoRows:
    _row = re.compile(
        r"(?P<reason>\S.*?)\s+(?P<user>\S+)\s+(?P<time>\d{4}-\d\d-\d\dT[\d:]+|Unknown)\s+(?P<nodes>\S+)\s*$"
    )

    def __init__(self) -> None:
        self.found: list[Fact] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if match := self._row.match(row.text):
            self.found.extend(
                row.fact("node_event", who=Identity(host=host), reason="Drained", message=match["reason"])
                for host in hosts_of(match["nodes"])
            )
            return True
        self.stray += 1
        return None if self.stray < STRAY else False

    def facts(self) -> Iterable[Fact]:
        return self.found
