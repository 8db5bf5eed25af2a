"""The report as JSON: the keys of docs/report.md, in their order. `schema.json` beside this file is their schema."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from whichrank import __version__
from whichrank.model import Report, Weighed
from whichrank.report.printable import printable

ORDER = (
    *("schema_version", "tool", "verdicts", "ranks", "timeline", "gaps", "incidents", "label", "summary", "weighed"),
    *("circumstances", "redacted", "footnotes"),
)
_AS_GIVEN = frozenset({"source"})  # a path must open the file that it names, whatever is in its name


def render(report: Report, *, indent: int = 1) -> bytes:
    """UTF-8 JSON with a line end. `indent` 0 writes one line."""
    text = msgspec.json.encode(as_dict(report))
    return msgspec.json.format(text, indent=indent) + b"\n" if indent else text + b"\n"


def as_dict(report: Report) -> dict[str, Any]:
    """The report as plain dicts, lists and values; `report.extra` adds its keys beside the others."""
    plain = replace(report, names=(), incidents=(), weighed=(), table=None, told=None, around=())
    found: dict[str, Any] = _clean(msgspec.to_builtins(plain))
    extra = found.pop("extra")
    found["tool"] = report.tool or f"whichrank {__version__}"
    found["weighed"] = [_weighed(cause) for cause in report.weighed]
    found["incidents"] = [as_dict(incident) for incident in report.incidents]
    return {name: found[name] for name in ORDER} | {name: extra[name] for name in extra if name not in ORDER}


def _weighed(cause: Weighed) -> dict[str, Any]:
    """Clues as objects: a pair of a number and an object is awkward to read in most languages."""
    clues = [{"score": score, **_clean(msgspec.to_builtins(proof))} for score, proof in cause.clues]
    return {"cause": cause.cause, "confidence": cause.confidence, "score": cause.score, "clues": clues}


def _clean(value: Any, name: str = "") -> Any:
    """Texts without terminal sequences, so that `jq -r` is as safe as the terminal report."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if name in _AS_GIVEN else printable(value, keep_lines=True)
    if isinstance(value, dict):
        return {printable(key): _clean(inner, key) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner, name) for inner in value]
    return value


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what `render` writes."""
    text = (Path(__file__).parent / "schema.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found
