#!/usr/bin/env python3
"""Whether anything that a log may hold breaks whichrank.

    python bench/fuzz.py --minutes 10 --seed 1 --keep finds/

Real samples are mutated (fuzz_inputs.py) and given to all readers, in one piece or skimmed, to what unpacks archives, and every few times to the
whole diagnosis with all its reports. A find is an exception, more than 2 s a megabyte or too much memory, a
control character in a report, or JSON that its schema refuses. Each kind of find is kept once: `--keep`/KIND/ holds the
files, made as small as it goes; a find that was fixed belongs below tests/evidence/seeds/. Exits with 1 if there were any.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import traceback
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import FrameType

os.environ["WHICHRANK_DEBUG"] = "1"  # a reader's bug raises
sys.path.insert(0, str(Path(__file__).parent))

import jsonschema
from fuzz_inputs import Inputs

from whichrank.diagnosis import report_on
from whichrank.evidence import Evidence, read_blocks, read_piece
from whichrank.evidence.unpack import BLOCK, Budget, Member, members
from whichrank.report import json_report, markdown, terminal

Files = dict[str, bytes]
SLOW = 2.0  # seconds, for up to 1 MB; more for more
HUNG = 30  # seconds
MEMORY = 3 << 30  # bytes of address space
ROOM = 300 << 20  # bytes that one input may take
MANY = 2000  # ranks
REPORT = 4  # every so manieth input becomes a report
SCHEMA = Path(json_report.__file__).parent / "schema.json"
VALID = jsonschema.validators.validator_for(json.loads(SCHEMA.read_bytes()))(json.loads(SCHEMA.read_bytes()))


class Find(Exception):
    """Something is wrong; the text is what kind of finds it belongs to."""


def read(files: Files) -> Evidence:
    evidence = Evidence()
    for name, data in files.items():
        read_piece(name, data, evidence)
    return evidence


def skim(files: Files) -> None:
    """As if each were so large that only its end is taken apart line by line."""
    evidence = Evidence()
    for name, data in files.items():
        read_blocks(name, (data[at : at + 997] for at in range(0, len(data), 997)), evidence, share=3000)


def report(files: Files) -> None:
    found = report_on(read(files))
    visible("terminal", terminal.plain(found, 50))
    visible("terminal", terminal.plain(found, 120, all=True))
    visible("markdown", markdown.render(found, all=True))
    written = json.loads(json_report.render(found))
    if len(written["ranks"]) > MANY:  # what checks the schema takes seconds for them
        return
    try:
        VALID.validate(written)
    except jsonschema.ValidationError as error:
        raise Find(f"schema {'.'.join(map(str, error.schema_path))}") from error


def visible(where: str, text: str) -> None:
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs") and character != "\n":
            raise Find(f"{where} shows U+{ord(character):04X}")


def unpack(files: Files) -> None:
    for name, data in files.items():
        for found in members(name, io.BytesIO(data), Budget()):
            if isinstance(found, Member):
                visible("member", found.name)
                if any(not 0 < len(block) <= BLOCK for block in found.blocks):
                    raise Find("a block that is too long, or empty")
            else:
                visible("gap", found.what + found.why)


Target = Callable[[Files], object]


def _spot(frame: FrameType | None) -> str:
    """The innermost function of the package: "module.function"."""
    while frame and f"whichrank{os.sep}" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}" if frame else ""


late: list[str] = []
watched: list[bool] = []  # is an input being tried?


def _late(number: int, frame: FrameType | None) -> None:
    late.append(_spot(frame))


def _hung(number: int, frame: FrameType | None) -> None:
    if watched:
        raise Find("hangs")


def tried(target: Target, files: Files) -> tuple[str, str]:
    """What kind of find this is, "" for none, and all that is known of it."""
    before = peak(forget=True)
    begun = time.process_time()
    late.clear()
    signal.setitimer(signal.ITIMER_VIRTUAL, SLOW)
    signal.alarm(HUNG)
    watched.append(True)
    try:
        target(files)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "whichrank" in frame.filename]
        spot = f"{Path(ours[-1].filename).stem}.{ours[-1].name}" if ours else ""
        word = str(error) if isinstance(error, Find) else type(error).__name__
        return f"{word} {spot}", traceback.format_exc()
    finally:
        watched.clear()
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    spent, grown = time.process_time() - begun, peak() - before
    if spent > SLOW * max(1, sum(map(len, files.values())) / 1e6):
        return f"slow {late[0] if late else target.__name__}", f"{spent:.1f} s"
    if grown > ROOM:
        return f"memory {target.__name__}", f"{grown >> 20:,} MiB"
    return "", ""


def peak(forget: bool = False) -> int:
    """The most memory that this process held, in bytes; `forget`: what it holds from now on (Linux only)."""
    try:
        if forget:
            Path("/proc/self/clear_refs").write_text("5")
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) << 10
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def minimal(target: Target, files: Files, kind: str, seconds: float = 90) -> Files:
    """Fewer files, lines, then bytes, of the same kind of find."""
    until = time.monotonic() + seconds
    for name in list(files):
        less = {other: data for other, data in files.items() if other != name}
        if less and tried(target, less)[0] == kind:
            files = less
    for name in files:
        for unit in (b"\n", b""):
            parts = files[name].split(unit) if unit else [files[name][at : at + 1] for at in range(len(files[name]))]
            size = len(parts) // 2
            while size and time.monotonic() < until:
                at, shrunk = 0, False
                while at < len(parts) and time.monotonic() < until:
                    less = {**files, name: unit.join(parts[:at] + parts[at + size :])}
                    if tried(target, less)[0] == kind:
                        parts, files, shrunk = parts[:at] + parts[at + size :], less, True
                    else:
                        at += size
                size = size if shrunk and size < 3 else size // 2
    return files


def keep(folder: Path, kind: str, files: Files, told: str) -> None:
    target = folder / re.sub(r"[^\w.]+", "-", kind).strip("-").lower()
    shutil.rmtree(target, ignore_errors=True)
    for name, data in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)
    print(f"\n{kind}: {target}\n{told}", flush=True)


def campaign(minutes: float, seed: int, folder: Path) -> int:
    """Number of finds, of different kinds."""
    rng = random.Random(seed)
    inputs = Inputs(rng)
    kinds: set[str] = set()
    until, count, size, slowest = time.monotonic() + minutes * 60, 0, 0, 0.0
    while time.monotonic() < until:
        count += 1
        target: Target = read
        if (dice := rng.random()) < 0.1:
            target, files = unpack, dict([inputs.archive()])
        elif dice < 0.35:
            target, files = skim, dict([inputs.evidence()])
        elif count % REPORT == 0:
            target, files = report, dict(inputs.evidence() for _ in range(rng.randrange(1, 5)))
        else:
            files = dict([inputs.evidence()])
        size += sum(map(len, files.values()))
        begun = time.monotonic()
        kind, told = tried(target, files)
        slowest = max(slowest, time.monotonic() - begun)
        if kind and kind not in kinds:
            kinds.add(kind)
            keep(folder, kind, files, told)
            keep(folder, kind, minimal(target, files, kind), "made smaller")
    print(
        f"{count:,} inputs, {size >> 20:,} MiB, {len(kinds)} finds; slowest {slowest:.1f} s, {peak() >> 20:,} MiB at last"
    )
    return len(kinds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("finds"))
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _hung)
    signal.signal(signal.SIGVTALRM, _late)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.exit(1 if campaign(args.minutes, args.seed, args.keep) else 0)


if __name__ == "__main__":
    main()
