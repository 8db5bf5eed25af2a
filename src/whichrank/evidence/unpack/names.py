"""Names of an archive's members, as they may be shown and joined to a path.

>>> clean("../../etc/passwd"), clean("./logs//rank0.log"), clean("C:\\\\logs\\\\a\\x1b[31m.log")
(('etc/passwd', True), ('logs/rank0.log', False), ('logs/a\\\\x1b[31m.log', True))
"""

from __future__ import annotations

import re
import unicodedata

LONGEST = 1000  # characters
_PLAIN = re.compile(r"[ -~]*")
_DRIVE = re.compile(r"[A-Za-z]:")


def clean(name: str) -> tuple[str, bool]:
    """The name without what leads out of the archive, and whether there was such a thing.

    Control characters and what reorders text are shown as Python writes them.
    """
    parts = name.replace("\\", "/").split("/")
    strange = ".." in parts or (not parts[0] and len(parts) > 1)
    kept = [part for part in parts if part not in ("", ".", "..")]
    if kept and (drive := _DRIVE.match(kept[0])):
        strange = True
        kept[0] = kept[0][drive.end() :]
    short = "/".join(filter(None, kept)) or "unnamed"
    if len(short) > LONGEST:
        short = "…" + short[-LONGEST:]
    return (short if _PLAIN.fullmatch(short) else "".join(map(_shown, short))), strange


def _shown(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character.encode("unicode_escape").decode()
    return character


def beside_the_point(name: str) -> bool:
    """What macOS puts beside every file in an archive: resource forks, Finder's notes."""
    last = name.rpartition("/")[2]
    return last.startswith("._") or last == ".DS_Store" or name.startswith("__MACOSX/")


class Distinct:
    """Names as they come, the second of a kind with a number: `tar -r` adds a log that has grown once more."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._times

    def folders(self) -> set[str]:
        return {name[:at] for name in self._times for at, char in enumerate(name) if char == "/"}

    def add(self, name: str) -> str:
        """
        >>> distinct = Distinct()
        >>> [distinct.add("rank0.log") for _ in range(3)]
        ['rank0.log', 'rank0.log (2)', 'rank0.log (3)']
        """
        new = name
        while new in self._times:
            self._times[name] += 1
            new = f"{name} ({self._times[name]})"
        self._times[new] = 1
        return new
