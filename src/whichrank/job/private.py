"""What a job's evidence calls its private things: hosts, pods, users, jobs, data. For the redaction of a report.

A name is taken from what the readers know (hosts and pods of identities, servers, addresses that are names) and from
places in a text where only a name stands: `user=`, `/home/…`, `--job-name`, the host before NCCL's pid.
Words that everybody uses (`train`, `root`, `node`) are no names: see common_words.py.

>>> sorted(names_in("ssh jo@gq-3: srun --job-name=lm-2b7 python /home/jkent/train.py"))
[('host', 'gq-3'), ('job', 'lm-2b7'), ('user', 'jkent'), ('user', 'jo')]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from whichrank.evidence.slurm_tables import STATES
from whichrank.facts import Fact
from whichrank.job.common_words import is_common
from whichrank.job.model import Job

Name = tuple[str, str]  # kind (host, pod, user, job, dataset, bucket, model, domain, file), as the evidence spells it

_WORD = r"[A-Za-z0-9][\w.+-]*"
_HOST = r"[A-Za-z][\w.-]*[A-Za-z0-9]"
_SETS = r"[\"']?\s*[=:]\s*[\"']?"  # name = value, name: value, "name": "value"
_OPTION = r"(?:[= ]\s*)[\"']?"
# `sacct -P`: the job's number, names in the order that was asked for, the state, perhaps a node.
_ROW, _CELL = r"^\s*\d{4,}[\w.+]*\|", r"(?:[^|]*\|)"
_STATE = rf"{_CELL}*?(?:{'|'.join(STATES)})(?: by \d+)?(?:\||$)"
# (kind, pattern): its group `name` holds a name wherever it matches
CONTEXTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("host", r"(?P<name>[A-Za-z0-9][\w.-]*):\d+:\d+ \[-?\d+\] "),  # NCCL
        ("host", rf"(?:^|\s)[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d (?P<name>{_HOST}) [\w./-]+(?:\[\d+\])?: "),  # syslog
        ("host", rf"^\d{{4}}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+) (?P<name>{_HOST}) [\w./-]+(?:\[\d+\])?: "),
        ("host", r"\b(?P<name>ip-\d{1,3}(?:-\d{1,3}){3})\b"),  # a cloud's
        ("host", rf"\bssh (?:-\S+ )*(?:[\w.-]+@)?(?P<name>{_HOST})"),
        ("host", r"\b(?:[Hh]ost|[Hh]ost_?[Nn]ame|HOSTNAME|[Nn]ode_?[Nn]ame|[Nn]ode|BatchHost|NodeList|(?i:master_addr))\s*[=:]\s*[\"']?(?P<name>(?=[\w.-]*\d)[A-Za-z][\w.-]*[A-Za-z0-9])"),
        ("host", r"\b(?:on|ON) (?:node |host )?(?P<name>(?=[\w.-]*\d)[A-Za-z][\w.-]*[A-Za-z0-9]) (?:CANCELLED|exited|FAILED)"),
        ("host", rf"\bon (?:node|host) (?P<name>(?=[\w.-]*\d){_HOST})"),
        ("host", rf"\b(?:tcp|etcd|grpc|redis|amqp)://(?P<name>{_HOST})(?=[:/]|$)"),
        ("host", rf"^(?:\S+ )?srun: error: (?P<name>{_HOST}): task"),
        ("host", rf"\bserver (?P<name>{_HOST}) (?:not responding|OK|has)"),
        ("host", rf"\b(?:connect(?:ing)?(?:/validate)? to (?:host )?|to host |peer |client |server )\(?\[?(?P<name>(?=[\w.-]*[\d.-]){_HOST})\]?(?:, |:)\d{{2,5}}\b"),
        ("host", rf"(?<![\w./:@-])(?P<name>(?=[\w.-]*[\d.-]){_HOST}):/(?=\w)"),  # a mount's source, scp
        ("pod", rf"\bpods?/(?P<name>{_WORD})"),
        ("pod", rf"\b(?:[Pp]od(?:_name)?|POD_NAME){_SETS}(?P<name>(?=[\w.-]*-){_WORD})"),
        ("pod", r"\b[Pp]od \"?(?P<name>(?=[\w.-]*-\w*\d)[a-z][\w.-]*[a-z0-9])"),
        ("job", rf"\b(?:[Nn]amespace|NAMESPACE){_SETS}(?P<name>{_WORD})"),
        ("job", rf"(?<=\s)(?:-n|--namespace){_OPTION}(?P<name>[a-z][a-z0-9-]*[a-z][a-z0-9-]*)(?!\S*/)\b"),
        ("job", r"\bassigned (?P<name>[a-z0-9-]+)/[a-z0-9]"),
        ("user", r"/(?:home|users|Users|export/home|nfs/home)/(?P<name>[A-Za-z][\w.-]*)"),
        ("user", r"\b(?:UserId|User|user|USER|LOGNAME|username|user_name)[\"']?[=:]\s*[\"']?(?P<name>[A-Za-z][\w.-]*)"),
        ("user", r"\buid=\d+\((?P<name>[\w.-]+)\)"),
        ("user", r"\bfor user (?P<name>[A-Za-z][\w.-]*)"),
        ("user", rf"(?<![\w./@+-])(?P<name>[a-z_][\w-]*)@(?={_HOST}(?:[\s:'\"]|$))"),
        ("user", r"^(?P<name>[a-z_][\w+.-]*) +\d+ +[\d.]+ +[\d.]+ +\d+ +\d+ (?:\?|pts/\d+|tty\w+) "),  # ps aux
        ("job", rf"--(?:job[-_]name|account|partition|qos|comment|reservation|project|run[-_]name|exp[-_]name|experiment[-_]name|rdzv[-_]id|wandb[-_](?:project|entity|name|group)){_OPTION}(?P<name>{_WORD})"),
        ("job", rf"\b(?:JobName|Account|AccountName|Partition|QOS|Comment|Reservation|SLURM_JOB_(?:NAME|ACCOUNT|PARTITION)|WANDB_(?:PROJECT|ENTITY|NAME|RUN_GROUP|RUN_ID)|MLFLOW_EXPERIMENT_NAME)=[\"']?(?P<name>{_WORD})"),
        ("job", rf"\b(?:job_?name|project(?:_?name)?|run_?name|exp(?:eriment)?_?name|wandb_(?:project|entity|group)){_SETS}(?P<name>{_WORD})"),
        ("job", rf"\b(?:Syncing run|setting up run|View project at|View run) (?P<name>{_WORD})"),
        ("job", r"\b(?:StepId|JobId|SLURM_JOB_?ID|job_?id)[\"']?\s*[=:]\s*[\"']?(?P<name>\d{4,})"),
        ("job", r"\b(?:JOB|STEP) (?P<name>\d{4,})(?:\.\w+)? ON "),
        ("job", rf"^\s*(?P<name>\d{{4,}})[\w.+]*\|{_STATE}"),
        *(("job", rf"{_ROW}{_CELL}{{{cells}}}(?P<name>[A-Za-z][\w.+-]*)\|{_STATE}") for cells in range(4)),
        ("host", rf"{_ROW}{_STATE}{_CELL}*?(?P<name>(?=[\w.-]*\d){_HOST})(?:\||$)"),
        ("switch", r"\b[Ss]witch:? (?P<name>(?=[\w.-]*\d)[A-Za-z][\w.-]*\w)"),
        ("host", r"\bInstance (?P<name>(?=[\w.-]*\d)[a-z][\w.]*-[\w.-]*\w)"),
        ("job", r"(?:#SBATCH|\bs(?:run|batch|alloc)\b[^|;\n]*?) -[JA] (?P<name>[A-Za-z][\w.-]*)"),
        ("user", r"\blogged in as:? \S+ \((?P<name>[\w.-]+)\)"),
        ("user", r"\blogged in as:? (?P<name>[\w.-]+)"),
        ("group", r"\bGroupId=(?P<name>[\w.-]+)\("),
        ("host", rf"\bConnection to (?P<name>{_HOST}) \(at "),
        ("job", r"\bslurm-(?P<name>\d{4,})"),
        ("dir", r"(?<![\w.])/(?:(?:home|[Uu]sers)/[\w.-]+|(?:scratch|work|workspace|projects?|srv|app|data|mnt|fsx|lustre|gpfs|nfs)(?:/[\w.-]+)?)/(?P<name>[A-Za-z][\w-]{2,}\w)(?=[/'\"\s,:)\]]|$)"),
        ("dataset", rf"(?:--dataset(?:[-_](?:name|path|dir))?{_OPTION}|\bdataset(?:_name|_path|_dir)?{_SETS}|\bload_dataset\([\"'])(?P<name>[\w./+-]+)"),
        ("image", r"(?:--container[-_]image[= ]|\b[Ii]mage(?: ID)?[\"']?\s*[=:]\s*[\"']?|\bimage \")(?P<name>[\w.-]+(?:/[\w.-]+)+(?::[\w.-]+)?(?:@sha256:\w+)?)"),
        ("bucket", rf"\b[Bb]ucket(?:_?[Nn]ame)?{_SETS}(?P<name>{_WORD})"),
        ("model", rf"(?:--(?:model(?:[-_]name(?:[-_]or[-_]path)?)?|tokenizer|checkpoint|ckpt|resume(?:[-_]from(?:[-_]checkpoint)?)?){_OPTION}|\b(?:model_name(?:_or_path)?|checkpoint_(?:name|path)|ckpt_(?:name|path)|resume_from(?:_checkpoint)?){_SETS})(?P<name>[\w./+-]+)"),
    )
)  # fmt: skip
_VALUES = {
    "host": "host", "hosts": "host", "a": "host", "b": "host", "server": "host", "address": "host", "peer_host": "host",
    "master_addr": "host", "peer": "host", "failed_node": "host", "switch": "switch", "user": "user", "job_name": "job",
    "partition": "job", "account": "job",
}  # fmt: skip
_DIGITS = re.compile(r"\d+")
_NO_NAME = re.compile(r"\W*(?:\d[\d.:]*|[A-Z][A-Z_]+|0x[0-9a-f]+)?\W*")  # a number, an address, a placeholder
_POD_PARTS = re.compile(
    r"(?:-(?:worker|master|launcher|chief|ps|head|replica|workers|node|runner|job|[0-9]+|[a-z0-9]{5}|[0-9a-f]{8,10}))+$"
)


def names_in(text: str) -> Iterator[Name]:
    """Names that stand in this text where only a name can stand."""
    for kind, pattern in CONTEXTS:
        for match in pattern.finditer(text):
            if name := name_of(match, kind):
                yield kind, name


def name_of(match: re.Match[str], kind: str) -> str:
    """The name in a match of one of `CONTEXTS`, without the end of its sentence; empty where no name stands there."""
    name = match["name"].rstrip(".,-:")
    path = kind in ("dataset", "model") and "/" in name and name[0] in "./"
    return name if is_name(name, kind) and not path else ""


def is_name(text: str, kind: str = "") -> bool:
    """Can this word be the name of something private? Machines are called by common words too: fs-home, node1."""
    if kind == "job" and text.isdecimal():
        return len(text) > 3
    machine = kind in ("host", "pod") and re.search(r"[a-z]\d|\w-\w", text) is not None
    return len(text) > 1 and not _NO_NAME.fullmatch(text) and (machine or not is_common(text))


def private_names(jobs: Iterable[Job]) -> tuple[Name, ...]:
    """All names that the evidence of these jobs holds, each once, in a stable order."""
    found: dict[Name, None] = {}
    sources: dict[str, None] = {}
    shapes: set[str] = set()  # one line of each: another of the same shape differs in a number only
    for job in jobs:
        found.update(dict.fromkeys(_of_job(job)))
        sources.update(dict.fromkeys(source.path for source in job.sources))
        lines = [(line.shape, line.spot.excerpt) for line in job.said]
        lines += [(_DIGITS.sub("#", fact.spot.excerpt), fact.spot.excerpt) for fact in job.facts]
        for shape, text in lines:
            if shape not in shapes:
                shapes.add(shape)
                found.update(dict.fromkeys(names_in(text)))
    return (*found, *(("file", path) for path in sources))


def _of_job(job: Job) -> Iterator[Name]:
    for host in sorted(job.hosts):
        yield "host", host
    for info in job.ranks.values():
        yield from ((kind, name) for kind, name in (("host", info.host), ("pod", info.pod)) if name)
    if job.label:
        yield "job", job.label
    for fact in job.facts:
        yield from _of_fact(fact)


def _of_fact(fact: Fact) -> Iterator[Name]:
    if fact.who.host:
        yield "host", fact.who.host
    if fact.who.pod:
        yield "pod", fact.who.pod
        if is_name(base := _POD_PARTS.sub("", fact.who.pod)) and len(base) > 3:
            yield "job", base
    if fact.who.world:
        yield "job", fact.who.world
    number = _DIGITS.match(str(fact["job"] or ""))  # of "771177_3.batch"
    if number and is_name(number[0], "job"):
        yield "job", number[0]
    for key, kind in _VALUES.items():
        value = fact.values.get(key)
        for name in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(name, str) and is_name(name, kind) and re.fullmatch(r"[\w.:-]+", name):
                yield kind, name
    if fact.kind == "resolves" and isinstance(fact["name"], str):
        yield "host", fact["name"]
