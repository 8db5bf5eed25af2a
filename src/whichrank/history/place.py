"""Where a history is kept: standard library only, since a launcher of jobs asks too."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def default_url() -> str:
    """WHICHRANK_HISTORY, or a file in the user's data folder (XDG_DATA_HOME; its equivalents elsewhere)."""
    if told := os.environ.get("WHICHRANK_HISTORY"):
        return told
    home = os.environ.get("XDG_DATA_HOME", "")
    if home and Path(home).is_absolute():
        folder = Path(home)
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = Path.home() / ".local" / "share"
    return str(folder / "whichrank" / "history.db")


def is_url(text: str) -> bool:
    """A database, and not evidence: a URL, or a file called like one."""
    return "://" in text or Path(text).suffix.lower() in (".db", ".sqlite", ".sqlite3")
