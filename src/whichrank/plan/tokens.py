"""How many tokens a data file has, without a tokenizer: exactly for token ids, roughly for text."""

from __future__ import annotations

import json
from pathlib import Path

from whichrank.errors import UsageProblem

CHARACTERS_PER_TOKEN = 4.0  # English text; code and other languages have fewer


def count_tokens(path: Path) -> float:
    """Tokens of a file: exactly for token ids (.bin, two bytes each), else by its characters.

    Raises:
        UsageProblem: the file cannot be read.
    """
    try:
        if path.suffix == ".bin":
            return path.stat().st_size / 2
        with path.open("rb") as start:
            if b"\0" in start.read(4096):
                raise UsageProblem(f"{path} is neither text nor JSON lines (nor token ids in a .bin): give --tokens")
        characters = 0
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                characters += _characters(line) if path.suffix in (".jsonl", ".json") else len(line)
    except OSError as error:
        raise UsageProblem(f"cannot read {path}: {error.strerror or error}") from error
    return characters / CHARACTERS_PER_TOKEN


def _characters(line: str) -> int:
    """Of the strings in a JSON line; of the line as it is, if it is none."""
    try:
        return _strings(json.loads(line))
    except (ValueError, RecursionError):
        return len(line)


def _strings(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_strings(item) for item in value.values())
    return sum(_strings(item) for item in value) if isinstance(value, list) else 0
