"""Where a command is told to write: never over what it is told to read, which nobody may have a second time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from whichrank.errors import UsageProblem


def check(targets: Mapping[str, str | None], evidence: Sequence[str] = (), files: Iterable[str | None] = ()) -> None:
    """Raises UsageProblem where a target is one of the inputs, or two targets are one file.

    targets: option -> FILE. evidence: as `diagnose` takes it, folders and globs among it. files: other files that are
    read. Nothing is looked for where no target is there yet.
    """
    places = {option: Path(file) for option, file in targets.items() if file and file != "-"}
    seen: dict[Path, str] = {}
    for option, place in places.items():
        if place.exists() and not place.is_file():  # /dev/null may be named as often as one likes
            continue
        other = seen.setdefault(Path(os.path.realpath(place)), option)
        if other != option:
            raise UsageProblem(
                f"{other} and {option} name the same file, {place}: the second would overwrite the first"
            )
    there = {_identity(place): (option, place) for option, place in places.items() if place.is_file()}
    if not there:
        return
    for path in _inputs(evidence, files):
        if found := there.get(_identity(Path(path))):
            option, place = found
            raise UsageProblem(
                f"{option} {place} is among what is to be read, and would be overwritten: name another file"
            )


def _inputs(evidence: Sequence[str], files: Iterable[str | None]) -> Iterator[str]:
    yield from (file for file in files if file)
    if evidence:
        from whichrank.evidence.collect import Found, collect

        yield from (entry.path for entry in collect(evidence) if isinstance(entry, Found) and "://" not in entry.path)


def _identity(path: Path) -> tuple[int, int] | None:
    """The file itself, whatever it is called: a link is no other file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
