"""Evidence in, facts out. `READERS` lists every reader; adding one is a new module and a line here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module

from whichrank.evidence import envelope, kind
from whichrank.evidence.collect import collect
from whichrank.evidence.frame import from_path
from whichrank.evidence.scan import Reader, Scanner
from whichrank.facts import Fact, Gap, Identity, Said, Source

READERS = (
    "torch_watchdog",
    "torch_desync",
    "torch_store",
    "torch_elastic",
    "python_errors",
    "dataloader",
    "gloo",
    "nccl",
    "cuda",
    "launchers",
    "kernel",
    "slurm",
    "kubernetes",
    "stacks",
    "placement",
    "settings",
    "network_tools",
    "disk_tools",
    "gpu_tools",
    "collectors",
    "nccl_ras",
)


_LABELLED = re.compile(r"^\[rank ?(\d+)\]", re.M)


@dataclass(slots=True)
class Evidence:
    """Everything that was read."""

    facts: list[Fact] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


@lru_cache(maxsize=1)
def readers() -> tuple[Reader, ...]:
    return tuple(import_module(f"whichrank.evidence.{name}").READER for name in READERS)


@lru_cache(maxsize=1)
def scanner() -> Scanner:
    return Scanner(readers())


def read(paths: Sequence[str], progress: Callable[[str], None] | None = None) -> Evidence:
    """Read all evidence under `paths` (files, folders, globs, "-"). Never raises on what it finds there."""
    evidence = Evidence()
    for piece in collect(paths):
        if isinstance(piece, Gap):
            evidence.gaps.append(piece)
            continue
        if progress:
            progress(piece.name)
        read_piece(piece.name, piece.data, evidence)
    return evidence


def read_piece(name: str, data: bytes, evidence: Evidence) -> None:
    """One file's bytes into `evidence`."""
    label = from_path(name)
    source = Source(name, bytes=len(data), identity=Identity(label.world, label.attempt, label.rank, label.local_rank))
    evidence.sources.append(source)
    for reader in readers():
        if reader.whole and reader.whole.sniff(data[:4096], name):
            source.readers, source.kind = (reader.name,), "dump"
            for found in reader.whole.read(data, source):
                if isinstance(found, Gap):
                    evidence.gaps.append(found)
                else:
                    evidence.facts.append(found)
            return
    text = decode(data)
    if text is None:
        evidence.gaps.append(Gap(name, "binary, in no format that is known here", "the program's text output"))
        return
    if label.rank is not None and len(set(_LABELLED.findall(text[:4_000_000])) - {str(label.rank)}) > 1:
        source.identity = replace(source.identity, rank=None)  # several ranks speak in it: its name is no label
    source.ends_midline = not text.endswith(("\n", "\r"))
    for part in envelope.peel(text, source):
        source.reordered = bool(part.numbers)
        facts, said = scanner().scan(part, source, source.identity)
        evidence.facts.extend(facts)
        evidence.said.extend(said)
    source.kind = kind.of(source, text)
    if source.trouble:
        shown = "; ".join(source.trouble[:3]) + ("; …" if len(source.trouble) > 3 else "")
        evidence.gaps.append(
            Gap(name, f"not every line could be taken apart: {shown}", "please report it with that line")
        )


def decode(data: bytes) -> str | None:
    """Bytes as text, or None if they are no text."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if b"\0" in data[:65536]:
        # Logs that were truncated under their writer begin with zeros; few zeros in a text are noise.
        if data.count(b"\0") > len(data) // 2 and not data.strip(b"\0").isascii():
            return None
        kept = data.replace(b"\0", b"")
        if len(kept) < len(data) - len(data) // 100 and not _looks_like_text(kept[:65536]):
            return None
        data = kept
    text = data.decode("utf-8", "replace")
    if text[:65536].count("\ufffd") > len(text[:65536]) // 5:
        return None
    return text


def _looks_like_text(head: bytes) -> bool:
    """Lines of printable characters, of a length that people write."""
    printable = sum(32 <= byte < 127 or byte in b"\t\r\n" or byte >= 0x80 for byte in head)
    return bool(head) and printable > 0.97 * len(head) and head.count(b"\n") > len(head) // 2000
