"""Golden files: what a page looks like is reviewed as a page. `make golden` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    """Compare with the golden file, or write it where UPDATE_GOLDEN is set."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.exists(), f"{path} is missing: run `make golden`, then read it"
    assert text == path.read_text(encoding="utf-8"), f"{name} looks different: if that is meant, run `make golden`"
