"""Where an incident's evidence lies: its path as a report names it, as a file of this machine, as a link from a page."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from whichrank.facts import MEMBER
from whichrank.history.incident import Incident

_LINE = re.compile(r":\d+$")


def located(incidents: Iterable[Incident], paths: Sequence[str]) -> list[Incident]:
    """With absolute paths as sources, where files are found: reports name them relative to what was asked for."""
    tops = {Path.cwd()}
    for argument in paths:
        if "://" not in argument:
            for match in [argument] if Path(argument).exists() else glob.glob(argument, recursive=True):  # noqa: PTH207
                tops |= {Path(match).absolute().parent, Path(match).resolve().parent}
    return [replace(one, source=_absolute(one.source, sorted(tops))) for one in incidents]


def _absolute(source: str | None, tops: Sequence[Path]) -> str | None:
    if not source or "://" in source:
        return source
    file = _file(source)
    for top in tops:
        try:
            if (top / file).is_file():
                return str(top / source)
        except (OSError, ValueError):
            continue
    return source


def _file(source: str) -> str:
    """The file without line and, of an archive, without its member."""
    return _LINE.sub("", source).partition(MEMBER)[0]


def short(source: str) -> str:
    """The file with its folder.

    >>> short("/data/logs/run3/hx07/rank04.log:18")
    'hx07/rank04.log:18'
    """
    return "/".join(source.replace("\\", "/").split("/")[-2:])


def href(source: str | None, base: Path | None) -> str:
    """A link to the file from a page in the folder `base`, relative where that can be; "" where there is no such file."""
    if not source or base is None or "://" in source:
        return ""
    try:
        path = Path(_file(source)).absolute()
        if not path.is_file():
            return ""
        relative = os.path.relpath(path, base.absolute())
    except (OSError, ValueError):
        return ""
    return "./" + quote(relative.replace(os.sep, "/"))
