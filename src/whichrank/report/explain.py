"""`whichrank explain`: one message, number, cause or format of evidence in plain words. Offline.

A cause's texts are those of its module in causes/, a format's those of its reader (evidence_pages.py); pasted text goes
through the readers, and every kind of fact that they find is explained from the tables beside this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from whichrank.evidence import READERS
from whichrank.facts import Fact
from whichrank.findings.failures import is_cascade
from whichrank.model import FAMILIES, FAMILY, Check
from whichrank.ranges import ranks as rank_ranges
from whichrank.report import explain_codes as codes
from whichrank.report.explain_hosts import KERNEL, MEMORY, SCHEDULERS, TOOLS
from whichrank.report.explain_messages import COLLECTIVES, CONTEXT, ECHO, NCCL, PROCESSES, WEIGHT, Message
from whichrank.report.explain_words import WORDS
from whichrank.report.explained import Explained
from whichrank.report.printable import lasting, printable

if TYPE_CHECKING:
    from whichrank.causes.base import Cause

MESSAGES: Mapping[str, Message] = COLLECTIVES | NCCL | PROCESSES | MEMORY | SCHEDULERS | KERNEL | TOOLS
MOST = 12  # kinds that are explained of one text


def explain(query: str, whole: bool = True) -> list[Explained]:
    """What is known about a cause's id, a format of evidence, a word of a report, a number, or pasted text.

    Empty if nothing is. `whole`: this is all that was asked, not one word of it.
    """
    word = query.strip()
    key = word.lower().replace("-", "_").replace(" ", "_")
    if key in FAMILY and (cause := _cause(key)):
        return [cause] if key not in WORDS else [cause, _word(key)]
    if key in WORDS:
        return [_word(key)]
    if key in FAMILIES:
        return [_family(key)]
    if key in MESSAGES and key not in READERS:
        return [_message(key.replace("_", " "), MESSAGES[key])]
    if whole and re.fullmatch(r"[A-Za-z][\w./-]*(?: \w+)?", word) and (formats := _formats(word)):
        return formats
    if re.fullmatch(r"-?\d{1,3}", word):
        return [_message(*found) for found in [codes.exit_code(int(word)), _xid(int(word))] if found]
    found = list(_of_text(query))[:MOST] or list(_of_part(query))[:3]
    words = word.split()
    if not found and 1 < len(words) <= 6:
        found = [entry for one in words if not one.lstrip("-").isdecimal() for entry in explain(one, whole=False)]
    return found


def _of_part(text: str) -> Iterator[Explained]:
    """A message of which only a part was given: the kinds whose own words it holds."""
    from whichrank.evidence import readers

    if len(text) < 10 or len(text) > 400:
        return
    seen: set[str] = set()
    for reader in readers():
        for line in reader.lines:
            if line.kind in MESSAGES and line.kind not in seen and any(len(w) > 9 and w in text for w in line.anchors):
                seen.add(line.kind)
                yield _message(line.kind.replace("_", " "), MESSAGES[line.kind])


def _formats(word: str) -> list[Explained]:
    from whichrank.report.explain_evidence import of_name

    return of_name(word)


def _word(key: str) -> Explained:
    kind, text = WORDS[key]
    return Explained(f"{key}: {kind}", (("means", text),), page=f"docs/causes/{key}.md" if key in FAMILY else "")


def _family(key: str) -> Explained:
    return Explained(f"{key}: a family of causes", (("causes", ", ".join(FAMILIES[key])),))


def _message(title: str, message: Message, line: str = "", more: int = 0, reads: str = "") -> Explained:
    parts = [("reads", reads), ("means", message.means), ("guilt", message.guilt), ("next", message.then)]
    return Explained(title, tuple((label, text) for label, text in parts if text), line=line, more=more)


# --- causes


def _cause(key: str) -> Explained | None:
    cause = _causes().get(key)
    if cause is None:
        return None if key in WORDS else Explained(f"{key}: a cause of the family {FAMILY[key]}", ())
    from whichrank.report.evidence_pages import readers_of

    evidence = dict.fromkeys(name for check in cause.settles for name in readers_of(check))
    parts = [("means", cause.means), ("looks like", cause.looks_like)]
    parts += [("" if number else "fix", text) for number, text in enumerate(cause.fix)]
    parts += [("stopgap", cause.stopgap), ("don't", cause.dont)]
    checks = tuple(Check(filled(c.says), filled(c.command), filled(c.where or "")) for c in cause.settles)
    title = f"{key}: {cause.title}" + (f" (family {FAMILY[key]})" if FAMILY[key] != key else "")
    parts.append(("evidence", ", ".join(evidence)))
    told = tuple((label, filled(text)) for label, text in parts if text)
    return Explained(title, told, checks, page=f"docs/causes/{key}.md")


def _causes() -> Mapping[str, Cause]:
    from whichrank.causes import BY_ID

    return BY_ID


def filled(text: str) -> str:
    """Placeholders of a command as a person fills them: {host} -> HOST."""
    return re.sub(r"\{(hosts?|ranks?|pid|group|job|pod|site)\}", lambda match: match[1].upper(), text)


# --- pasted text


def _of_text(text: str) -> Iterator[Explained]:
    found: dict[str, list[Fact]] = {}
    for fact in _facts(text):
        found.setdefault(_key(fact), []).append(fact)
    known: list[tuple[int, Explained]] = []
    for facts in found.values():
        if message := _of_fact(facts[0]):
            line = printable(facts[0].spot.excerpt)
            said = _message(_title(facts[0]), message, line, len(facts) - 1, decoded(facts[0]))
            known.append((WEIGHT.get(message.guilt, 9), said))
    known.sort(key=lambda entry: entry[0])
    yield from (said for _, said in known)
    told = " ".join(text for _, said in known for _, text in said.parts)
    for title, message in _of_words(text):
        if message.means in told:
            continue
        told += message.means
        yield _message(title, message._replace(guilt="") if message.guilt == CONTEXT else message)


def _facts(text: str) -> list[Fact]:
    from whichrank.evidence import Evidence, read_piece

    evidence = Evidence()
    read_piece("pasted text", text.encode("utf-8", "replace"), evidence)
    return evidence.facts


def _key(fact: Fact) -> str:
    """Facts of one key are explained once."""
    return f"{fact.kind} {fact['code']} {fact['exitcode']} {fact['signal']}"


def _title(fact: Fact) -> str:
    return f"Xid {fact['code']}" if fact.kind == "xid" else fact.kind.replace("_", " ")


def _of_fact(fact: Fact) -> Message | None:
    message = MESSAGES.get(fact.kind)
    if fact.kind == "exception" and is_cascade(fact):
        return ECHO
    if fact.kind == "xid" and isinstance(fact["code"], int) and (xid := codes.XIDS.get(fact["code"])):
        return xid
    if fact.kind in ("exit", "container_exit", "task_exit"):
        for number in (fact["exitcode"], fact["code"], -fact["signal"] if isinstance(fact["signal"], int) else None):
            if isinstance(number, int) and number and message and (code := codes.exit_code(number)):
                means = f"{message.means} {code[0][0].upper()}{code[0][1:]}: {code[1].means}"
                return Message(means, code[1].guilt, code[1].then or message.then)
    return message


def _xid(code: int) -> tuple[str, Message] | None:
    return (f"Xid {code}", codes.XIDS[code]) if code in codes.XIDS else None


_WORDS: tuple[tuple[str, Callable[[str], tuple[str, Message] | None]], ...] = (
    (r"\bxid\b[^\n]{0,40}?[: ]\s*(\d{1,3})\b(?![:.]\d)", lambda found: _xid(int(found))),
    (r"exit(?:ed)?(?: with)?[ _]?(?:code|status)[^\w-]{0,4}(-?\d{1,3})\b", lambda found: codes.exit_code(int(found))),
    (r"\b(?:exit|ended|died) (-?\d{1,3})\b", lambda found: codes.exit_code(int(found))),
    (r"ExitCode=\d+:(\d+)", lambda found: codes.exit_code(-int(found)) if int(found) else None),
    (r"\bsignal[ :=]+(\d{1,2})\b", lambda found: codes.exit_code(-int(found))),
    (r"\b(SIG[A-Z]{2,6}[12]?)\b", lambda found: _signal(found)),
    (r"\b(nccl[A-Z]\w+)\b", lambda found: _result(codes.RESULT_NAMES.get(found.lower(), ""))),
    (rf"({'|'.join(codes.RESULTS)})", lambda found: _result(found.lower())),
    (rf"\b({'|'.join(codes.STATES)})\b", lambda found: _by_name(codes.STATES, found)),
    (rf"\b({'|'.join(codes.SETTINGS)})\b", lambda found: _by_name(codes.SETTINGS, found)),
)


def _of_words(text: str) -> Iterator[tuple[str, Message]]:
    """Codes and names that say something wherever they stand, each once."""
    seen: set[str] = set()
    for pattern, meaning in _WORDS:
        for match in re.finditer(pattern, text, re.IGNORECASE):
            entry = meaning(match[1])
            if entry and entry[0] not in seen:
                seen.add(entry[0])
                yield entry


def _signal(name: str) -> tuple[str, Message] | None:
    return next((entry for entry in codes.SIGNALS.values() if entry[0] == name.upper()), None)


def _result(words: str) -> tuple[str, Message] | None:
    return (words, codes.RESULTS[words]) if words in codes.RESULTS else None


def _by_name(table: Mapping[str, Message], found: str) -> tuple[str, Message] | None:
    return next(((name, message) for name, message in table.items() if name.lower() == found.lower()), None)


def decoded(fact: Fact) -> str:
    """A fact's parts as a person says them: "rank 1, ALLREDUCE #57, 7,411,203 elements, timeout 1800 s"."""
    who = fact.who
    parts = [f"rank {who.rank}" if who.rank is not None else "", f"host {who.host}" if who.host else ""]
    parts += [f"pid {who.pid}" if who.pid is not None else "", f"group {fact.group}" if fact.group else ""]
    parts.append(f"GPU {who.gpu}" if who.gpu else "")
    op, seq = fact["op"], fact.seq
    if op or seq is not None:
        unknown = seq is not None and seq >= 2**63  # -1 in an unsigned number
        parts.append(f"{op or 'collective'}" + ("" if seq is None else ", number unknown" if unknown else f" #{seq}"))
    parts += [_value(name, value) for name, value in fact.values.items() if name not in ("op", "host")]
    return printable(", ".join(filter(None, parts)))


def _value(name: str, value: object) -> str:
    if value is None or value == "" or value == [] or name in ("frames", "text", "pid_text"):
        return ""
    label = name.replace("_", " ")
    if isinstance(value, bool):
        return label if value else ""
    if isinstance(value, (int, float)):
        if name.endswith("_ms"):
            return f"{label[:-3]} {lasting(value / 1000)}"
        if name == "seconds":
            return lasting(value)
        if name == "rss_kb":
            return f"{value / 2**20:.1f} GiB resident" if value >= 2**20 else f"{value / 2**10:.0f} MiB resident"
        return f"{label} {value:,}" if name.startswith("numel") else f"{label} {value}"
    if isinstance(value, (list, tuple)):
        numbers = [item for item in value if isinstance(item, int)]
        return f"{label} {rank_ranges(numbers, 60) if len(numbers) == len(value) else ', '.join(map(str, value))}"
    return f"{label} {value}"
