"""A report that may be posted: hosts, users, addresses, paths, names and secrets under aliases.

The same thing has the same alias all through a report, also in commands and file names: `node-03` is `host-1` in the
verdict, in the proofs and in `ssh host-1 dmesg`. Ranks, sequence numbers, operations, times and the messages of PyTorch,
NCCL and the kernel stay. Which names there are is told by the evidence (`Report.names`) and by the form of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from whichrank.job.private import Name, names_in
from whichrank.model import Circumstances, Report
from whichrank.report.redact_text import Redactor

if TYPE_CHECKING:
    from whichrank.findings.dumps import Told
    from whichrank.job.collectives import Collectives

FOOTNOTES = (
    "Redacted: hosts, pods, users, addresses, paths, names of jobs and data, and secrets stand under aliases, "
    "the same ones all through this report.",
    "Before you post it, read the quoted log lines once: a name that stands in the middle of a sentence, in an "
    "exception's own text, or as the name of a function, module or process group cannot be told from any other word.",
)
# Words of our own or of the clock, and numbers: nothing of the user's.
_OURS = frozenset(
    ("cause", "family", "grade", "rank_grade", "mechanism", "state", "do", "op", "at", "since", "tool", "footnotes")
)
_HOSTS = frozenset(("host", "hosts", "where", "exclude_hosts"))
_SOURCES = frozenset(("source", "unread"))
_JOB = re.compile(r"\bjob[ _]job-")  # "job 30802" is job-1, not job job-1
_NOT_SHOWN: dict[str, Any] = {"names": (), "table": None, "told": None}
_T = TypeVar("_T")


def redact(report: Report, pictures: bool = False) -> Report:
    """The same report, fit to be posted. Its verdict, its ranks and its numbers are those of `report`.

    pictures    redact its dumps too, for the pictures that are drawn of them; otherwise the result has none

    `report.names` says what the evidence calls its hosts, pods, users and jobs; a report without it (read back from
    JSON, say) is redacted by its own fields and by the forms of names. Redacting twice changes nothing.
    """
    if report.redacted:
        return report
    report = _bare(report)
    names = dict.fromkeys(report.names)
    _mapped(report, lambda text, field: _collect(text, field, names))
    redactor = Redactor(names)
    for row in sorted(report.ranks, key=lambda row: row.rank):
        if row.host:
            redactor.aliases.first(redactor.host(row.host)[:1])
    hidden = _mapped(report, lambda text, field: _hidden(redactor, text, field))
    inner = _hidden_in_dumps(redactor, report.table) if pictures and report.table is not None else {}
    table = redactor.aliases.shown()
    shown = _mapped(hidden, lambda text, field: _JOB.sub("job-", text.translate(table)))
    shown = replace(shown, redacted=True, footnotes=(*report.footnotes, *FOOTNOTES))
    if not inner or report.table is None:
        return shown
    change = {key: text.translate(table) for key, text in inner.items()}
    return _with_dumps(shown, report.table, report.told, lambda text, field: change.get((text, field), "?"))


def _hidden_in_dumps(redactor: Redactor, table: Collectives) -> dict[tuple[str, str], str]:
    from whichrank.report.redact_dumps import texts

    return {(text, field): _hidden(redactor, text, field) for text, field in texts(table)}


def _with_dumps(report: Report, table: Collectives, told: Told | None, change: Callable[[str, str], str]) -> Report:
    from whichrank.report.redact_dumps import redacted, untold

    return replace(report, table=redacted(table, change), told=untold(told, change) if told is not None else None)


def _bare(report: Report) -> Report:
    """Without what only a comparison over runs needs: names of data, files and mounts."""
    incidents = tuple(_bare(incident) for incident in report.incidents)
    extra = {name: value for name, value in report.extra.items() if name != "shared"}
    return replace(report, circumstances=Circumstances(), incidents=incidents, extra=extra)


def _collect(text: str, field: str, names: dict[Name, None]) -> str:
    if field in _HOSTS and " " not in text:
        names[("host", text)] = None
    elif field in _SOURCES:
        names[("file", text)] = None
    elif field not in _OURS:
        names.update(dict.fromkeys(names_in(text)))
    return text


def _hidden(redactor: Redactor, text: str, field: str) -> str:
    if not text or field in _OURS:
        return text
    if field in _HOSTS:
        return redactor.host(text)
    if field in _SOURCES or (field == "what" and text in redactor.files):
        return redactor.source(text)
    return redactor.text(text)


def _mapped(value: _T, change: Callable[[str, str], str], field: str = "") -> _T:
    """The same structure with every text changed; `change` is told the name of the field that holds it."""
    found: Any = value
    if isinstance(value, str):
        found = change(value, field)
    elif isinstance(value, dict):
        found = {key: _mapped(inner, change, str(key)) for key, inner in value.items()}
    elif isinstance(value, (tuple, list)):
        found = type(value)(_mapped(inner, change, field) for inner in value)
    elif is_dataclass(value) and not isinstance(value, type):
        new = {
            part.name: _mapped(getattr(value, part.name), change, part.name)
            for part in fields(value)
            if part.name not in _NOT_SHOWN
        }
        found = replace(value, **new, **(_NOT_SHOWN if isinstance(value, Report) else {}))
    return found  # type: ignore[no-any-return]
