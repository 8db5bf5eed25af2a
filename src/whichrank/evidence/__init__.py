"""Evidence in, facts out. `READERS` lists every reader; adding one is a new module and a line here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

from whichrank.evidence import envelope, fold, kind, parallel, quoted
from whichrank.evidence.collect import Found, collect, opened
from whichrank.evidence.frame import from_path
from whichrank.evidence.parallel import Workers
from whichrank.evidence.scan import ALL, Keep, Reader, Scanner, Whole
from whichrank.evidence.skim import HEAD, Skim, Survey
from whichrank.evidence.text import decode, head_of, recoded
from whichrank.facts import Fact, Gap, Identity, Said, Source

if TYPE_CHECKING:
    from whichrank.dump import Dump
    from whichrank.evidence.digest import Digested

READERS = (
    "torch_watchdog",
    "torch_desync",
    "torch_store",
    "torch_elastic",
    "torch_logs",
    "python_errors",
    "dataloader",
    "gloo",
    "nccl",
    "nccl_operations",
    "nccl_inspector",
    "cuda",
    "launchers",
    "framework_health",
    "kernel",
    "slurm",
    "kubernetes",
    "stacks",
    "digest",
    "torch_debug_server",
    "flight_recorder",
    "ring",
    "run_events",
    "placement",
    "settings",
    "network_tools",
    "port_counters",
    "connections",
    "clock_tools",
    "sysctl",
    "versions",
    "disk_tools",
    "memory_tools",
    "gpu_tools",
    "gpu_columns",
    "gpu_topology",
    "metrics",
    "collectors",
    "nccl_ras",
)


SAMPLE = 100_000  # characters of a large text by which its kind is told
WHOLE = 16 << 20  # bytes of text that are taken apart line by line, over all files
SMALLEST, LARGEST = 48 << 10, 4 << 20  # a file's share of that, for its end
FACTS = 60_000  # of all files
MUCH = 8 << 20  # bytes
DOCUMENT = 32 << 20  # bytes of what makes sense only whole: JSON documents, exports of log collectors
_LABELLED = re.compile(r"^\[rank ?(\d+)\]", re.M)


@dataclass(slots=True)
class Evidence:
    """Everything that was read."""

    facts: list[Fact] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    dumps: list[Dump] = field(default_factory=list)
    blocks: list[Digested] = field(default_factory=list)  # of digests: not yet taken apart

    def add(self, other: Evidence) -> None:
        self.facts.extend(other.facts)
        self.said.extend(other.said)
        self.sources.extend(other.sources)
        self.gaps.extend(other.gaps)
        self.dumps.extend(other.dumps)
        self.blocks.extend(other.blocks)

    def of(self, wanted: Callable[[Source], bool]) -> Evidence:
        """What some of its sources say. Gaps stay."""
        return replace(
            self,
            facts=[fact for fact in self.facts if wanted(fact.spot.source)],
            said=[line for line in self.said if wanted(line.spot.source)],
            sources=[source for source in self.sources if wanted(source)],
            dumps=[dump for dump in self.dumps if wanted(dump.source)],
        )


@lru_cache(maxsize=1)
def readers() -> tuple[Reader, ...]:
    return tuple(import_module(f"whichrank.evidence.{name}").READER for name in READERS)


@parallel.per_thread
def scanner() -> Scanner:
    return Scanner(readers())


@parallel.per_thread
def survey() -> Survey:
    return Survey(scanner())


def read(paths: Sequence[str], progress: Callable[[str], None] | None = None, workers: Workers = None) -> Evidence:
    """Read all evidence under `paths` (files, folders, globs, "-"). Never raises on what it finds there.

    `workers` read the files where there is enough to read; what is found, and its order, does not depend on them.
    """
    listed = list(collect(paths))
    found = [entry for entry in listed if isinstance(entry, Found)]
    share = share_of([entry.bytes for entry in found])
    evidence = Evidence(gaps=[entry for entry in listed if isinstance(entry, Gap)])
    tables: dict[Any, Any] = {}
    parts = _parts(found, share, workers)
    for entry, part in zip(found, parts, strict=True):
        if progress:
            progress(entry.name)
        evidence.add(part)
        for dump in part.dumps:  # other processes have made them: what they have in common is kept once
            dump.share(tables)
        if len(evidence.facts) > 2 * FACTS:
            _fold(evidence)
    if evidence.blocks:
        from whichrank.evidence.digested import take_apart

        take_apart(evidence)
    _fold(evidence)
    evidence.facts, gaps = quoted.foreign(evidence.facts, evidence.sources)
    evidence.gaps.extend(gaps)
    return evidence


def _parts(found: Sequence[Found], share: int, workers: Workers) -> Iterator[Evidence]:
    """What each file holds, in their order. An executor that was given may work on other machines."""
    if not isinstance(workers, Executor):
        yield from parallel.each(partial(read_file, share=share), found, workers if _much(found) else None)
        return
    there = [entry if "://" in entry.path else entry._replace(path=os.path.abspath(entry.path)) for entry in found]  # noqa: PTH100
    for entry, part in zip(found, parallel.each(partial(_read_there, share=share), there, workers), strict=True):
        yield read_file(entry, share) if part is None else part


def _read_there(found: Found, share: int) -> Evidence | None:
    """None where this machine does not see the file as it was listed."""
    if "://" not in found.path and (not os.path.isfile(found.path) or os.path.getsize(found.path) < found.bytes):  # noqa: PTH113, PTH202
        return None
    return read_file(found, share)


def _fold(evidence: Evidence) -> None:
    """Facts of many sources that are too many together."""
    evidence.facts, left_out = fold.fold(evidence.facts, FACTS)
    if left_out:
        evidence.gaps.append(Gap("all files together", fold.told(left_out)))


def _much(found: Sequence[Found]) -> bool:
    """Is there enough to read for other processes to be worth their start?"""
    return len(found) > 1 and sum(entry.bytes for entry in found) > MUCH


def share_of(sizes: Sequence[int]) -> int:
    """Bytes of a file's end that are taken apart line by line. A file not much larger is taken apart whole."""
    large = sum(size > SMALLEST for size in sizes)
    return max(SMALLEST, min(LARGEST, WHOLE // max(1, large)))


def read_file(found: Found, share: int = LARGEST) -> Evidence:
    """What one file holds, with its members where it is packed."""
    evidence = Evidence()
    for member in opened(found):
        if isinstance(member, Gap):
            evidence.gaps.append(member)
        else:
            read_blocks(member.name, member.blocks, evidence, share)
    for source in evidence.sources:
        if source.path == found.name:
            source.written_ns = found.written_ns
    return evidence


def read_blocks(name: str, blocks: Iterator[bytes], evidence: Evidence, share: int = LARGEST) -> None:
    """A stream's bytes into `evidence`: whole where it is small or makes sense only so, else skimmed."""
    head, more = head_of(blocks, share + share // HEAD)
    if more and (limit := _makes_sense_whole(head, name, share)):
        rest, more = head_of(blocks, limit)
        head += rest
    if not more:
        read_piece(name, head, evidence, kept=_kept(share))
    elif whole := _whole(head, name):
        why = f"larger than {whole[1].most >> 20} MiB, and of a kind that makes sense only whole: not read"
        evidence.gaps.append(Gap(name, why))
    else:
        _skim(name, head, blocks, evidence, share)


def _makes_sense_whole(head: bytes, name: str, share: int) -> int:
    """Up to which size a file that begins so is read whole; 0 where its lines stand for themselves.

    Exports of log collectors are put in the order of time, as long as they are few or small.
    """
    if whole := _whole(head, name):
        return whole[1].most
    if envelope.may_be_document(head):
        return DOCUMENT
    return min(DOCUMENT, 8 * share) if envelope.envelope_of(_lines(head)) else 0


def _kept(share: int) -> Keep:
    return Keep(min(ALL.each, share // 768), max(1000, share // 96), max(4000, share // 200))


def _whole(head: bytes, name: str) -> tuple[Reader, Whole] | None:
    """The reader of files as a whole to which this one belongs."""
    for reader in readers():
        if reader.whole and reader.whole.sniff(head[:4096], name):
            return reader, reader.whole
    return None


def _lines(head: bytes) -> list[str]:
    return (decode(head[:SAMPLE]) or "").split("\n")


def _source(name: str, size: int) -> Source:
    label = from_path(name)
    return Source(name, bytes=size, identity=Identity(label.world, label.attempt, label.rank, label.local_rank))


def read_piece(name: str, data: bytes, evidence: Evidence, kept: Keep = ALL) -> None:
    """One file's bytes into `evidence`."""
    source = _source(name, len(data))
    evidence.sources.append(source)
    if whole := _whole(data, name):
        source.kind = "dump"
        for found in whole[1].read(data, source):
            if isinstance(found, Gap):
                evidence.gaps.append(found)
                continue
            source.readers = (whole[0].name,)
            if isinstance(found, Fact):
                evidence.facts.append(found)
            elif isinstance(found, tuple):
                evidence.blocks.append(found)
            else:
                evidence.dumps.append(found)
        return
    unwrapped = _unwrapped(data, source)
    if unwrapped is None:
        evidence.gaps.append(_binary(name))
        return
    parts, text = unwrapped
    _name_is_no_label(source, text)
    facts: list[Fact] = []
    said: list[Said] = []
    for part in parts:
        source.places = part.places()
        found_here, said_here = scanner().scan(part, source, source.identity, kept)
        facts += found_here
        said += said_here
    source.kind = kind.of(source, text)
    _keep(facts, said, source, evidence)


def _unwrapped(data: bytes, source: Source) -> tuple[list[envelope.Part], str] | None:
    """A file's lines out of their envelopes, and the same as one text; None if it is no text."""
    if (document := envelope.document(data)) is not None:
        return [document], "\n".join(document.lines)
    text = decode(data)
    if text is None:
        return None
    parts = list(envelope.peel(text, source))
    source.ends_midline = not text.endswith(("\n", "\r")) or any(part.cut for part in parts)
    if any(part.numbers for part in parts):
        text = "\n".join(line for part in parts for line in part.lines)
    return parts, text


def _skim(name: str, head: bytes, blocks: Iterator[bytes], evidence: Evidence, share: int) -> None:
    source = _source(name, 0)
    evidence.sources.append(source)
    text = decode(head)
    if text is None:
        evidence.gaps.append(_binary(name))
        return
    lines = text[:SAMPLE].split("\n")
    if wrapping := envelope.envelope_of(lines):
        text = "\n".join(wrapping.unwrap(lines, range(1, len(lines) + 1)).lines)
    _name_is_no_label(source, text[:SAMPLE])
    skim = Skim(survey(), source, source.identity, share, _kept(share))
    facts, said = skim.run(recoded(chain((head,), blocks), source), wrapping)
    evidence.gaps.extend(skim.gaps)
    source.kind = kind.of(source, text[:SAMPLE])
    _keep(facts, said, source, evidence)


def _binary(name: str) -> Gap:
    return Gap(name, "binary, in no format that is known here", "the program's text output")


def _name_is_no_label(source: Source, text: str) -> None:
    """Where several ranks speak in a file, its name is no label."""
    rank = source.identity.rank
    if rank is not None and len(set(_LABELLED.findall(text[:4_000_000])) - {str(rank)}) > 1:
        source.identity = replace(source.identity, rank=None)


def _keep(facts: list[Fact], said: list[Said], source: Source, evidence: Evidence) -> None:
    """Facts and lines of a source of known kind: without what it cannot know."""
    if source.kind == "training":
        facts, gaps = quoted.sift(facts, said, source)
        evidence.gaps.extend(gaps)
    evidence.facts.extend(facts)
    evidence.said.extend(said)
    if source.left_out:
        evidence.gaps.append(Gap(source.path, fold.told(source.left_out)))
    if source.trouble:
        shown = "; ".join(source.trouble[:3]) + ("; …" if len(source.trouble) > 3 else "")
        why = f"not every line could be taken apart: {shown}"
        evidence.gaps.append(Gap(source.path, why, "please report it with that line"))
