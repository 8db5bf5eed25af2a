"""Who is speaking: the labels that launchers and loggers put in front of a line.

torchrun prints ``[default0]:`` or ``[rank3]:``, srun -l ``11: ``, Ray ``(Worker pid=833, ip=10.0.0.7)``, mpirun
``[1,3]<stdout>:``, kubectl ``[pod/name/container]``, NCCL ``host:pid:tid [cudaDev]``, syslog ``host kernel:``.

>>> peel("5: [rank5]:   File \\"train.py\\", line 3", Dialect(tasks=True))
Labels(text='  File "train.py", line 3', task=5, rank=5, local_rank=None, host=None, pod=None, pid=None, actor=None, gpu=None, weak=False, soft=False, bare=True)
>>> peel("(WorkerDict pid=833, ip=10.0.0.7) ready", Dialect()).pid
833
>>> peel("[fetcher rank 1] skip sample", Dialect()).rank
1
>>> peel("gx-11:40714:40845 [3] NCCL INFO Connected all rings", Dialect()).host
'gx-11'

Formats of loggers: Composer `rank3[4101][MainThread]:`, axolotl `[PID:210] [RANK:3]` (the *local* rank), NVRx
`[workload:3(3) infra:0(0)]` and `[RankMonServer88@node-7:3]`, vLLM `(Worker_TP3 pid=515)`, SGLang `[… TP3]`.

>>> label = peel("[2026-07-30 09:30:15,123] [INFO] [axolotl.train.train:226] [PID:2101] [RANK:3] Starting", Dialect())
>>> label.rank, label.local_rank, label.pid
(None, 3, 2101)

A rank that is merely mentioned ("waiting for rank 3") is not the speaker. `[PG 1 Rank 0]` is a rank within its group
and never the speaker where a global label stands before it. So is the bare `[Rank 0]` of PyTorch's C++ code: `weak`,
it speaks only where neither a label nor the file's name says who does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from whichrank.facts import slashed

ANSI = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


class Dialect(NamedTuple):
    """What a whole file shows about its labels: each is ambiguous on a single line."""

    tasks: bool = False  # "3: text": srun -l
    task_is_rank: bool = False  # one task a rank: no line contradicts it
    hosts: bool = False  # "node7: text": pdsh, clush, DeepSpeed's launcher
    named: tuple[str, ...] = ()  # the same labels where no digit shows them to be hosts: "titan: text"
    short: bool = False  # "r3 text"
    bracket: bool = False  # "<stamp> [3] text"
    trailing: bool = False  # "<stamp> text rank 3"


class Labels(NamedTuple):
    text: str
    task: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pod: str | None = None
    pid: int | None = None
    actor: str | None = None
    gpu: str | None = None
    weak: bool = False
    soft: bool = False  # the rank stands within the text, not in a label before it
    bare: bool = False  # within the text itself there is no label


_TASK = re.compile(r" {0,4}(?P<task>\d{1,5}): ?(?!\d\d:\d\d\b)")  # no time of day
_TASK_AND_RANK = re.compile(r" {0,4}(?P<task>\d{1,5}): ?(?:\S+ \S+ )?\[rank ?(?P<rank>\d{1,5})[\]/ ]")
_HOST = re.compile(
    r"(?P<host>(?!(?i:rank|step|epoch|node|worker|attempt|gpu|cuda|job|task)[_-]?\d+:)[A-Za-z][\w.]*[\d-][\w.-]*): ?(?!\d+:\d+ \[)"
)  # but NCCL's own host:pid:tid
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_STAMPED = re.compile(
    r"\d{4}-\d\d-\d\d[T ][\d:]{8}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?:? (?=\[\d+,\d+(?:,[\w.-]+)?\]<std|\[rank\d+\]:|\[default\d+\]:|\([\w.:<>/-]* ?pid=\d+)"
)
_SHORT = re.compile(r"r(?P<rank>\d{1,5}) ")
_PEELS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[rank ?(?P<rank>\d{1,6})\]:? ?",
        r"\[default(?P<local_rank>\d{1,4})\]:? ?",
        r"\((?P<actor>(?:Vllm)?Worker)[_ ]TP(?P<rank>\d{1,6})(?:_(?:DCP|EP)\d+)* pid=(?P<pid>\d+)\) ?",
        r"\((?P<actor>[\w.:<>/-]*)(?:,? rank=(?P<rank>\d{1,6}))?,? ?pid=(?P<pid>\d+)(?:, ip=(?P<host>[\w.:-]+))?\) ?",
        r"\[\d+,(?:mpirank:)?(?P<rank>\d{1,6})(?:,(?P<host>[\w.-]+))?\]<std(?:out|err)>: ?",
        r"\[pod/(?P<pod>[^/\]\s]+)/[^\]\s]+\] ?",
        r"\((?P<actor>raylet|autoscaler|gcs_server)(?:, ip=(?P<host>[\w.:-]+))?\) ?",
    )
)
_PEELS_OF = {
    char: tuple(pattern for pattern in _PEELS if pattern.pattern.startswith("\\" + char)) for char in "[("
}  # by the character that a line must begin with
_SPEAKERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[(?!PG )(?:[\w .:|/-]{0,32}[ :|/-])?[Rr](?:ank|ANK)[ _:=]?(?P<rank>\d{1,6})\b[^\]]{0,60}\]",
        r"(?<![\w.])(?:global_)?(?:rank|RANK)[=:] ?(?P<rank>\d{1,6})\b",
        r"(?:^|[\])}|>] ?|(?:- |\d |INFO |DEBUG |WARNING |ERROR )) ?rank[ -]?(?P<rank>\d{1,6})(?=$|[ :|/,])(?! (?:is|was|has|did|did|and|or|failed|timed|process)\b)",
        r"^\((?:[\w .-]{0,16} )?rank[ :=]?(?P<rank>\d{1,6})\)",
        r"(?:^|[\])\d] )\[(?:[A-Za-z][\w-]{0,15} )?[rR](?P<rank>\d{1,5})\]",
    )
)
_LOGGERS = tuple(
    (anchor, re.compile(pattern))
    for anchor, pattern in (
        ("[PID:", r"\[PID:(?P<pid>\d+)\] \[RANK:(?P<local_rank>\d{1,4})\]"),
        ("Thread]: ", r"(?:^|: )rank(?P<rank>\d{1,6})\[(?P<pid>\d+)\]\[\w+\]: "),
        ("[workload:", r"\[(?P<host>[A-Za-z][\w.-]*)\] \[workload:(?P<rank>\d{1,6})\((?P<local_rank>\d{1,4})\) infra:"),
        ("[RankMonServer", r"\[RankMonServer\d+@(?P<host>[\w.-]+):(?P<rank>\d{1,6})\]"),
        (" TP", r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: DP\d+)? TP(?P<rank>\d{1,6})(?: EP\d+)?\]"),
    )
)
_IN_GROUP = re.compile(
    r"(?:ProcessGroup\w+\.cpp:\d+\] |what\(\): {1,2}|exception: |RuntimeError: |DistBackendError: )(?:\[PG [^\]]*\] ?)?\[Rank (?P<rank>\d{1,6})\]"
)
_BRACKET = re.compile(r"\d \[(?P<rank>\d{1,5})\] ")
_TRAILING = re.compile(r"[ ,|]rank[ =:]?(?P<rank>\d{1,5})\s*$")
_NCCL = re.compile(r"(?:^|[\] ])(?P<host>[A-Za-z0-9][\w.-]*):(?P<pid>\d+):\d+ \[(?P<gpu>-?\d+)\] ")
_SYSLOG = re.compile(
    r"(?:\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2})?) (?!(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)(?P<host>[A-Za-z][\w.-]*) (?:(?:kernel|systemd(?:-\w+)?|NetworkManager|slurmctld|slurmd|slurmstepd|kubelet|containerd|dockerd|sshd|nvidia-\w+|python\d?)(?:\[\d+\])?|[\w./-]+\[\d+\]): "
)
HEAD, TAIL = 140, 40  # characters in which a label is looked for


def peel(line: str, dialect: Dialect, bare: bool = False) -> Labels:
    """The line without its labels, and what they say. `bare`: only labels before the text are looked for."""
    found: dict[str, str] = {}
    text = line
    if dialect.tasks and (match := _TASK.match(text)):
        found.update(match.groupdict())
        text = text[match.end() :]
    if dialect.hosts and (match := _HOST.match(text[:HEAD])):
        found.update(match.groupdict())
        text = text[match.end() :]
    elif dialect.named and (host := text[:HEAD].partition(":")[0]) in dialect.named:
        found["host"] = host
        text = text[len(host) + 1 :].removeprefix(" ")
    if dialect.short and (match := _SHORT.match(text)):
        found.update(match.groupdict())
        text = text[match.end() :]
    # A collector's stamp before a launcher's label: "2022-01-18T13:19:15.7Z: [1,5]<stderr>:Traceback …"
    if text[:2].isdigit() and (match := _STAMPED.match(text)):
        text = text[match.end() :]
    peeled = True
    while peeled and text[:1] in _PEELS_OF:
        peeled = False
        for pattern in _PEELS_OF[text[0]]:
            if match := pattern.match(text):
                for name, value in match.groupdict().items():
                    if value:
                        found.setdefault(name, value)
                text = text[match.end() :]
                peeled = True
                break
    if bare:
        return _labels(text, found, False, False, True)
    head = text[:HEAD]
    nccl = _NCCL.search(head)
    syslog = None
    if nccl:  # what NCCL says after its own label are ranks in a communicator
        head = head[: nccl.end()].rsplit(":", 2)[0]
    weak, soft = False, "rank" not in found
    logger = _logger(head)
    if logger:
        for name, value in logger.groupdict().items():
            found.setdefault(name, value)
    elif "rank" not in found and (match := _IN_GROUP.search(head)):
        found["rank"], weak = match["rank"], True
    elif "rank" not in found:
        for pattern in _SPEAKERS:
            if match := pattern.search(head):
                found["rank"] = match["rank"]
                break
        else:
            if (dialect.bracket and (match := _BRACKET.search(head))) or (
                dialect.trailing and (match := _TRAILING.search(text[-TAIL:]))
            ):
                found["rank"] = match["rank"]
    if dialect.task_is_rank and "rank" not in found and "task" in found:
        found["rank"] = found["task"]
    if nccl:
        if _ADDRESS.fullmatch(found.get("host", "")):
            del found["host"]  # Ray labels by address, NCCL by name
        for name, value in nccl.groupdict().items():
            found.setdefault(name, value)
    elif syslog := _SYSLOG.search(head):
        found.setdefault("host", syslog["host"])
    inside = weak or nccl is not None or syslog is not None or logger is not None or (soft and "rank" in found)
    return _labels(text, found, weak, soft and "rank" in found, not inside)


def _logger(head: str) -> re.Match[str] | None:
    for anchor, pattern in _LOGGERS:
        if anchor in head and (match := pattern.search(head)):
            return match
    return None


def _labels(text: str, found: dict[str, str], weak: bool, soft: bool, bare: bool) -> Labels:
    number = {name: int(value) for name in ("task", "rank", "local_rank", "pid") if (value := found.get(name))}
    return Labels(
        text,
        number.get("task"),
        number.get("rank"),
        number.get("local_rank"),
        found.get("host"),
        found.get("pod"),
        number.get("pid"),
        found.get("actor"),
        found.get("gpu"),
        weak,
        soft,
        bare,
    )


def dialect_of(lines: Sequence[str]) -> Dialect:
    """What most lines of a file start with. Looks at up to 600 of them."""
    if len(lines) > 600:
        lines = [*lines[:300], *lines[len(lines) // 2 : len(lines) // 2 + 100], *lines[-200:]]
    lines = [line for line in lines if line.strip()]
    if not lines:
        return Dialect()
    share = {
        "tasks": sum(bool(_TASK.match(line)) for line in lines) / len(lines),
        "short": sum(bool(_SHORT.match(line)) for line in lines) / len(lines),
        "bracket": sum(bool(_BRACKET.search(line[:60]) and not _NCCL.search(line[:HEAD])) for line in lines)
        / len(lines),
        "trailing": sum(bool(_TRAILING.search(line[-TAIL:])) for line in lines) / len(lines),
    }
    names = Counter(match["host"] for line in lines if (match := _HOST.match(line[:HEAD])))
    common = [count for count in names.values() if count >= 4]
    hosts = sum(names.values()) / len(lines) > (0.8 if len(common) < 2 else 0.4) and len(names) <= max(
        2, len(lines) // 8
    )
    tasks = share["tasks"] > 0.8
    pairs = [(match["task"], match["rank"]) for line in lines if (match := _TASK_AND_RANK.match(line))] if tasks else []
    one_each = (
        tasks
        and all(task == rank for task, rank in pairs)
        and not any("[default" in line or "torch/distributed/elastic/" in line for line in lines)
    )
    return Dialect(
        tasks=tasks,
        task_is_rank=one_each,
        hosts=hosts,
        named=() if hosts else _named_hosts(lines),
        short=share["short"] > 0.2,
        bracket=share["bracket"] > 0.4,
        trailing=share["trailing"] > 0.4,
    )


_PLAIN = re.compile(r"(?P<host>[A-Za-z][\w.-]*): (?!\d+:\d+ \[)")
_OWN_NAME = re.compile(r"(?P<host>[A-Za-z][\w.-]*): ?(?P=host):\d+:\d+ \[-?\d+\] ")  # before NCCL's own
_WORLD = re.compile(r"WORLD INFO DICT: \{(?P<hosts>[^}]{1,4000})\}")


def _named_hosts(lines: Sequence[str]) -> tuple[str, ...]:
    """Labels that the file itself shows to be hosts, where most lines have one.

    A word before a colon may be anything ("INFO: "): it is a host where NCCL says the same name behind it, or where
    DeepSpeed's launcher lists it.

    >>> _named_hosts(["titan: titan:41:41 [0] NCCL INFO x", "titan: ready", "rhea: rhea:41:41 [0] NCCL INFO x"])
    ('rhea', 'titan')
    """
    known: set[str] = set()
    labels: Counter[str] = Counter()
    for line in lines:
        if match := _PLAIN.match(line[:HEAD]):
            labels[match["host"]] += 1
        if match := _OWN_NAME.match(line[:HEAD]):
            known.add(match["host"])
        elif "WORLD INFO DICT" in line and (match := _WORLD.search(line)):
            known.update(re.findall(r"'([A-Za-z][\w.-]*)': \[", match["hosts"]))
    found = known & set(labels)
    return tuple(sorted(found)) if 2 * sum(labels[host] for host in found) > len(lines) else ()


_RANK_OF_FOLDER = re.compile(r"(?:global[_-]?)?rank[_=-]?0*(\d{1,6})", re.I)  # a folder: nothing but the rank
_LOCAL_IN_NAME = re.compile(r"(?:^|[^a-z])local[_-]?rank[_.=-]?0*(\d{1,4})(?!\d)", re.I)
_RANK_IN_NAME = re.compile(r"(?:^|(?<!local)[^a-z])(?:global)?rank[_.=-]?0*(\d{1,6})(?![\d]|-\d)", re.I)
_TORCHRUN_DIR = re.compile(r"attempt_(\d+)/(\d+)/(?:stdout|stderr|error)[^/]*$")
_SUBMITIT = re.compile(r"(?:^|/)(?P<job>\d{2,})_(?P<task>\d{1,5})_log\.(?:out|err)$")  # submitit: JOB_TASK_log.err
_ATTEMPT_IN_NAME = re.compile(r"(?:attempt|restart|retry|try)[_.-]?(\d{1,3})(?!\d)", re.I)
_JOB_IN_NAME = re.compile(r"(?:^|[/_.-])(?<!pid[_.-])(\d{4,9})(?=[_./-])|(?:job|slurm)[_-]?(\d{3,9})", re.I)


class PathLabels(NamedTuple):
    world: str | None
    attempt: int | None
    rank: int | None
    local_rank: int | None


def from_path(path: str) -> PathLabels:
    """What a path says: rank03.log, attempt_0/5/stderr.log (torchrun --log-dir: the *local* rank), 30802_rank2.log.

    >>> from_path("logs/none_x/attempt_1/5/stderr.log")
    PathLabels(world=None, attempt=1, rank=None, local_rank=5)
    >>> from_path("30802_rank2.log")
    PathLabels(world='30802', attempt=None, rank=2, local_rank=None)
    >>> from_path("6610342_5_log.err")
    PathLabels(world='6610342', attempt=None, rank=5, local_rank=None)
    >>> from_path("rank_3/stdout.log").rank, from_path("rank0-tokenising/console.log").rank
    (3, None)
    >>> from_path("stacks/pid-22027.txt").world
    >>> from_path("train.rank0-2.log").rank
    >>> from_path("node-3/local_rank5.log")[2:]
    (None, 5)
    """
    path = slashed(path)
    if match := _TORCHRUN_DIR.search(path):
        return PathLabels(None, int(match[1]), None, int(match[2]))
    if match := _SUBMITIT.search(path):
        return PathLabels(match["job"], None, int(match["task"]), None)
    name = "/".join(path.split("/")[-3:])
    *folders, file = name.split("/")
    rank = [int(match[1]) for folder in folders if (match := _RANK_OF_FOLDER.fullmatch(folder))]
    rank += [int(found) for found in _RANK_IN_NAME.findall(file)]
    local = _LOCAL_IN_NAME.search(file)
    attempt = _ATTEMPT_IN_NAME.search(name)
    job = _JOB_IN_NAME.search(name)
    return PathLabels(
        (job[1] or job[2]) if job else None,
        int(attempt[1]) if attempt else None,
        rank[-1] if rank else None,
        int(local[1]) if local else None,
    )
