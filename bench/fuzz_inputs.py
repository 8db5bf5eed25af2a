"""Evidence that nobody meant: real samples, mutated. Everything comes from one `random.Random`, so a seed repeats it."""

from __future__ import annotations

import ast
import bz2
import doctest
import gzip
import io
import json
import lzma
import random
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from whichrank.evidence import READERS, readers

ROOT = Path(__file__).resolve().parent.parent
MOST = 60_000  # bytes taken of a sample
Mutation = Callable[[random.Random, bytes, bytes], bytes]

NAMES = (
    "train.log", "rank0.log", "rank3.out", "node-03.dmesg", "sacct.txt", "attempt_1/5/stderr.log", "pods.yaml",
    "nccl_trace_rank_0", "pyspy/rank1.json", "notes.md", "hosts", "metrics.csv", "events.jsonl", "ps.txt",
)  # fmt: skip
ODD = (
    b"\x1b[31m", b"\x1b[2K\r", b"\x1b]0;title\x07", b"\x1b[", b"\x9b31m", b"\x1bP+q\x1b\\", b"\0", b"\0" * 600, b"\r",
    b"\r\n", b"\n\r", b"\x0b\x0c", "\u202e".encode(), "\u2028".encode(), "\ufeff".encode(), "\U000e0041".encode(),
    b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"<script>alert(1)</script>", b"</td>&lt;<b onclick=x>", b"`|*_[](x)",
    b"9" * 30, b"9" * 5000, b"-1", b"1e999", b"0x" + b"f" * 40, b"NaN", b"\xd9\xa3", "²".encode(), b"%s%n{0}{x!r}",
    b"2026-13-45 25:61:61", b"9999-12-31T23:59:59Z", b"0001-01-01 00:00:00", b"[rank4294967296]:", b"[rank-1]: ",
    b"rank 99999999999999999999", b"99999999999:", b"(((((((", b"[" * 300, b"{\"a\":" * 300, b" " * 3000, b"\t" * 200,
    b"\\" * 99, b"'\"" * 50, b"0-99999999", b"[0, 1, 2", b"None", b"true", b"../../etc/passwd", b"https://x\x1b\\y",
)  # fmt: skip


def samples() -> list[bytes]:
    """What the readers' docstrings show, and the anchors that they look for."""
    found: list[bytes] = []
    for name in READERS:
        module = ROOT / "src" / "whichrank" / "evidence" / f"{name}.py"
        for example in doctest.DocTestParser().get_examples(ast.get_docstring(ast.parse(module.read_text())) or ""):
            for node in ast.walk(ast.parse(example.source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 20:
                    found.append(node.value.encode("utf-8", "replace"))
    return found


def anchors() -> list[bytes]:
    return sorted(
        {
            anchor.encode()
            for reader in readers()
            for table in (reader.lines, reader.blocks)
            for row in table
            for anchor in row.anchors
        }
    )


def cases() -> list[Path]:
    roots = [ROOT / "tests" / "cases", ROOT / "examples", ROOT / "tests" / "evidence" / "seeds"]
    files = (path for root in roots for path in sorted(root.rglob("*")) if path.is_file())
    return [path for path in files if path.name not in ("truth.json", "gen.py", "README.md")]


# Mutations: (randomness, the sample, another sample) -> bytes


def cut(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data[rng.randrange(len(data) + 1) :]


def flip(rng: random.Random, data: bytes, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 5, 50, len(out) // 50 + 1)) if out else 0):
        out[rng.randrange(len(out))] = rng.randrange(256) if rng.random() < 0.5 else rng.choice(b"0 9[](){}:,=\"'\n-/.")
    return bytes(out)


def insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(ODD) + data[at:]
    return data


def interleave(rng: random.Random, data: bytes, other: bytes) -> bytes:
    ours, theirs, out = data.split(b"\n"), other.split(b"\n"), []
    while ours or theirs:
        side = ours if ours and (not theirs or rng.random() < 0.5) else theirs
        take = rng.randrange(1, 6)
        out.extend(side[:take])
        del side[:take]
    return b"\n".join(out)


def glue(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Lines torn and run together, as two processes on one pipe leave them."""
    lines, theirs = data.split(b"\n"), other.split(b"\n")
    for _ in range(rng.randrange(1, 20)):
        at, torn = rng.randrange(len(lines)), rng.choice(theirs)
        where = rng.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:where] + torn[: rng.randrange(len(torn) + 1)] + rng.choice((b"", lines[at][where:]))
    return b"\n".join(lines)


def shuffle(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = data.split(b"\n")
    if rng.random() < 0.5:
        rng.shuffle(lines)
    else:
        lines = [line for line in lines if rng.random() < 0.8]
    return b"\n".join(lines)


def repeat(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One line or one word of a line, many times."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    line, times = lines[at][:300], rng.choice((2, 20, 400, 3000))
    if rng.random() < 0.6 and b" " in line:
        words = line.split(b" ")
        word = rng.randrange(len(words))
        lines[at] = b" ".join(words[:word] + [words[word]] * times + words[word:])
    else:
        lines[at] = rng.choice((b"\n", b"", b" ", b"\r")).join([line] * times)
    return b"\n".join(lines)[: 8 * MOST]


def pump(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A character or two of a line, thousands of times: what a pattern that tries every split takes minutes for."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    where = rng.randrange(len(lines[at]) + 1)
    unit = rng.choice(
        (lines[at][where : where + rng.randrange(1, 4)], b" ", b"a", b"1", b"a ", b"1 ", b"a=1 ", b"[", b"a.")
    )
    lines[at] = lines[at][:where] + unit * rng.choice((300, 3000, 20_000)) + lines[at][where:]
    return b"\n".join(lines)


def numbers(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Digits replaced: by none, by very many, by negative ones, by those of other alphabets."""
    odd = (
        b"",
        b"-1",
        b"0",
        b"1" * 25,
        b"9" * 400,
        "٣".encode(),
        b"1.5",
        b"18446744073709551615",
        b"1e400",
        b"00",
        b"x",
    )
    share = rng.choice((0.02, 0.2))
    return re.sub(rb"\d+", lambda match: rng.choice(odd) if rng.random() < share else match[0], data)


def ends(rng: random.Random, data: bytes, other: bytes) -> bytes:
    kinds = rng.choice(((b"\r\n",), (b"\r",), (b"\n", b"\r\n", b"\r", b"\n\n", b"\x0b", "\u2028".encode())))
    return b"".join(line + rng.choice(kinds) for line in data.split(b"\n"))


def one_line(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data.replace(b"\n", rng.choice((b" ", b"\r", b"\\n", b"")))


def recode(rng: random.Random, data: bytes, other: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "latin-1")), "replace")


def soup(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Lines that hold what readers look for, and little else."""
    words = data.split()[:2000] or [b"x"]
    lines = []
    for _ in range(rng.randrange(1, 60)):
        parts = [rng.choice(rng.choice((ANCHORS, words, ODD))) for _ in range(rng.randrange(1, 8))]
        lines.append(rng.choice((b"", b"[rank%d]: " % rng.randrange(9), b"  ")) + rng.choice((b" ", b"")).join(parts))
    return b"\n".join(lines)


def records(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """JSON lines of a log collector, some of them wrong."""
    out = []
    for line in data.split(b"\n")[:400]:
        record: dict[str, object] = {
            rng.choice(("log", "message", "line", "textPayload")): line.decode("utf-8", "replace"),
            rng.choice(("time", "ts", "timestamp")): rng.choice(
                ("2026-07-30T09:30:15.4Z", 1785403815, 1e300, "-1", "1785403815000000000000", "", None, -5, True)
            ),
            rng.choice(("labels", "kubernetes", "resource")): rng.choice(
                ({"pod": "asr-0", "host": "n-1"}, [], "x", {"a": {}})
            ),
        }
        text = json.dumps(record).encode()
        out.append(text if rng.random() < 0.95 else text[: rng.randrange(len(text))])
    return b"\n".join(out)


def document(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """JSON, nested without end or of wrong types, where a reader may expect its own."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        depth = rng.choice((10, 900, 100_000))
        opening, closing = rng.choice(((b"[", b"]"), (b'{"entries":', b"}"), (b'{"frames":[', b"]}")))
        return opening * depth + b"1" + closing * rng.choice((depth, 0))
    return json.dumps(_spoilt(rng, found)).encode()


def _spoilt(rng: random.Random, found: object) -> object:
    if rng.random() < 0.03:
        return rng.choice((None, True, -1, 10**400, 1.5, "", "x", [], {}, [[]], "\x1b[31m", "9" * 5000))
    if isinstance(found, dict):
        return {key: _spoilt(rng, value) for key, value in found.items() if rng.random() > 0.02}
    return [_spoilt(rng, value) for value in found] if isinstance(found, list) else found


MUTATIONS: tuple[Mutation, ...] = (
    cut, flip, insert, interleave, glue, shuffle, repeat, pump, numbers, ends, one_line, recode, soup, records, document,
)  # fmt: skip
ANCHORS: list[bytes] = []


class Inputs:
    """Makes one input after the other."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._samples, self._cases = samples(), cases()
        ANCHORS[:] = anchors()

    def sample(self) -> tuple[str, bytes]:
        if self.rng.random() < 0.35 or not self._cases:
            return self.rng.choice(NAMES), self.rng.choice(self._samples)
        path = self.rng.choice(self._cases)
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError):
                pass
        if len(data) > MOST:
            at = self.rng.choice((0, len(data) - MOST, self.rng.randrange(len(data))))
            data = data[at : at + MOST]
        return self.rng.choice((path.name, self.rng.choice(NAMES))), data

    def evidence(self) -> tuple[str, bytes]:
        """A name and bytes: a sample after one to four mutations."""
        name, data = self.sample()
        for _ in range(self.rng.choice((1, 1, 2, 3, 4))):
            data = self.rng.choice(MUTATIONS)(self.rng, data, self.sample()[1])
        return name.removesuffix(".gz"), data[: 16 * MOST]

    def archive(self) -> tuple[str, bytes]:
        """Packed once to four times, damaged in between."""
        name, data = self.evidence()
        for _ in range(self.rng.randrange(1, 5)):
            data = self._packed(name, data)
            if self.rng.random() < 0.5:
                data = self.rng.choice((cut, flip, insert))(self.rng, data, b"")
        return "logs.tar.gz", data

    def _packed(self, name: str, data: bytes) -> bytes:
        kind = self.rng.randrange(6)
        out = io.BytesIO()
        if kind < 3:
            return (gzip.compress, bz2.compress, lambda data: lzma.compress(data, preset=0))[kind](data)
        if kind == 3:
            with zipfile.ZipFile(out, "w", self.rng.choice((0, 8, 12, 14))) as archive:
                archive.writestr(name, data)
                archive.writestr("other.log", data[:100])
        else:
            with tarfile.open(fileobj=out, mode="w", format=self.rng.randrange(3)) as archive:
                for member in (name, "x" * 150 + "/other.log"):
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
        return out.getvalue()
