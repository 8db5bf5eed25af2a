"""What is known of each format of evidence: for `whichrank explain kernel`, docs/evidence/ and docs/settle.md.

All of it is said once, where it belongs: a reader's docstring (what it reads, a real sample), its fields `title`,
`versions` and `collect`, and the checks of the causes. A check belongs to the readers of the tools that it names.
"""

from __future__ import annotations

import ast
import doctest
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from whichrank.causes import CAUSES, Cause
from whichrank.evidence import READERS, readers
from whichrank.evidence.sample import facts as sample_facts
from whichrank.evidence.scan import Reader
from whichrank.facts import Fact, Source
from whichrank.model import Check

# They start other programs, or are everywhere: none of them says what evidence a command makes.
_WRAPPERS = frozenset(
    ("ssh", "srun", "export", "cat", "env", "timeout", "bash", "ls", "sleep", "torchrun", "mount", "stat", "tee")
)
_ASSIGNED = re.compile(r"\b([A-Z][A-Z0-9_]{5,})=(?!\$)")
_TOOL = re.compile(r"(?:kubectl|scontrol) \w+|[a-z][\w-]+")
_NOT_SAMPLES = frozenset(("Source", "print", "open", "isinstance", "dict"))


@dataclass(frozen=True, slots=True)
class EvidencePage:
    """One format of evidence.

    name      of its reader
    about     the paragraphs of the docstring before its sample; the first is one sentence
    samples   texts as the tool prints them, and what is read in each
    settles   (cause, check) for each check of a cause that this evidence answers
    """

    name: str
    title: str
    versions: str
    collect: tuple[str, ...]
    about: tuple[str, ...]
    samples: tuple[tuple[str, tuple[Fact, ...]], ...]
    settles: tuple[tuple[Cause, Check], ...]


@cache
def evidence_page(name: str) -> EvidencePage:
    """The page of one reader, by its name in `READERS`."""
    reader = by_name()[name]
    text = sys.modules[f"whichrank.evidence.{name}"].__doc__ or ""  # none under python -OO
    about = tuple(" ".join(part.split()) for part in text.partition(">>>")[0].split("\n\n") if part.strip())
    read = tuple((sample, facts) for sample in samples(text) if (facts := _facts(reader, sample)))
    answers = tuple((cause, check) for cause in CAUSES for check in cause.settles if name in readers_of(check))
    return EvidencePage(name, reader.title, reader.versions, reader.collect, about, read, answers)


@lru_cache(maxsize=1)
def by_name() -> dict[str, Reader]:
    return dict(zip(READERS, readers(), strict=True))


def readers_of(check: Check) -> list[str]:
    """The readers of what this check collects."""
    words = _words(f"{check.command} {check.says}")
    return [reader.name for reader in readers() if any(word in words for word in tools(reader))]


def tools(reader: Reader) -> set[str]:
    """The names by which one calls what makes this evidence: programs, and settings such as NCCL_DEBUG."""
    found: set[str] = set()
    for command in reader.collect:
        for part in command.partition("#")[0].split(";"):
            found.update(_ASSIGNED.findall(part))
            if (match := _TOOL.match(part.strip())) and match[0] not in _WRAPPERS:
                found.add(match[0])
    return found | ({"/stack"} if any("/stack" in command for command in reader.collect) else set())


def _words(text: str) -> set[str]:
    words = set(re.findall(r"[A-Za-z][\w-]+", text)) | set(_TOOL.findall(text))
    return words | ({"/stack"} if "/stack" in text else set())


def _facts(reader: Reader, sample: str) -> tuple[Fact, ...]:
    """What the reader makes of a sample of its docstring: nothing of one that shows what is no such evidence."""
    data = sample.encode()
    if reader.whole and reader.whole.sniff(data[:4096], "sample.json"):
        return tuple(found for found in reader.whole.read(data, Source("sample.json")) if isinstance(found, Fact))
    return tuple(sample_facts(reader, sample))


def samples(docstring: str) -> Iterator[str]:
    """The texts that a docstring's examples are given to read, each once.

    >>> list(samples(">>> line = 'a b'\\n>>> facts(READER, line), facts(READER, 'c d')\\n"))
    ['a b', 'c d']
    """
    values: dict[str, str] = {}
    seen: set[str] = set()
    for example in doctest.DocTestParser().get_examples(docstring):
        tree = ast.parse(example.source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (text := _text(node.value)):
                values[node.targets[0].id] = text
        for call in _calls(tree):
            for argument in call.args:
                text = values.get(argument.id, "") if isinstance(argument, ast.Name) else _text(argument)
                if len(text) > 2 and text not in seen:
                    seen.add(text)
                    yield text


def _calls(tree: ast.AST) -> Sequence[ast.Call]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found = [call for call in found if isinstance(call.func, ast.Name) and call.func.id not in _NOT_SAMPLES]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _text(node: ast.expr) -> str:
    if not isinstance(node, ast.Constant):
        return ""
    if isinstance(node.value, bytes):
        return node.value.decode("utf-8", "replace")
    return node.value if isinstance(node.value, str) else ""
