"""The evidence of a run, packed and copied to where it outlives the node: `python -m whichrank.watch.keep RUN DIR NAME`.

Packed node-local first, beside the run directory, then copied: the storage that keeps it may be the very thing that
hangs. What tells most goes first, since an archive that breaks off is read as far as it goes. Of the output the beginning
and the end.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from whichrank.watch import limited

ORDER = (
    *("report.md", "report.json", "run.json", "events.jsonl", "incidents.json", "ring"),
    *("stacks", "host", "nodes", "dumps", "output.log"),
)
ENDS = 16 << 20  # bytes of an output's end; its beginning is in output.first.log
LARGEST = 64 << 20  # bytes of any other file


def copied(run: Path, to: str, name: str, seconds: float) -> bool:
    """In a child, which is left behind when the time is over. Is it there?"""
    package = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])}
    env.pop("WHICHRANK_RUN", None)
    ran = limited.run((sys.executable, "-m", "whichrank.watch.keep", str(run), to, name), seconds, env)
    return ran.code == 0


def _files(run: Path) -> Iterator[Path]:
    for name in ORDER:
        path = run / name
        yield from sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    yield from sorted(run.glob("output.*.log"))


def pack(run: Path, target: Path) -> None:
    """A .tar.gz of the run directory, in a folder of its name."""
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for path in _files(run):
            if path.name.endswith(".part"):
                continue
            with contextlib.suppress(OSError), path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                most = ENDS if path.name.startswith("output") else LARGEST
                file.seek(max(0, size - most))
                data = file.read(most)
                if size > most:
                    data = data[data.find(b"\n") + 1 :]
                entry = tarfile.TarInfo(f"{run.name}/{path.relative_to(run)}")
                entry.size, entry.mtime, entry.mode = len(data), time.time(), 0o600
                archive.addfile(entry, io.BytesIO(data))


def main(run: Path, to: Path, name: str) -> None:
    packed = run.with_name(f"{run.name}.tar.gz")
    os.umask(0o077)
    pack(run, packed)
    to.mkdir(parents=True, exist_ok=True)
    part = to / f".{name}.part"
    shutil.copyfile(packed, part)
    part.replace(to / name)
    packed.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
