"""An answer for a program: the typed result, sentences and warnings, and each default with its source and date."""

from __future__ import annotations

import json

from whichrank.plan.answer import SCHEMA_VERSION, Answer, to_plain


def render(answer: Answer) -> bytes:
    """UTF-8, indented. Quantities are in base units: bytes, seconds, FLOP, dollars, watts."""
    plain = {
        "schema_version": SCHEMA_VERSION,
        "calculator": answer.calculator,
        "title": answer.title,
        "says": list(answer.says),
        "warnings": list(answer.warnings),
        "result": _without_repeats(to_plain(answer.result)),
        "formulas": to_plain(answer.formulas),
        "figures": to_plain(answer.figures),
    }
    if answer.code:
        plain["code"] = answer.code
    return (json.dumps(plain, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()


def _without_repeats(result: object) -> object:
    """What stands beside the result already."""
    if isinstance(result, dict):
        return {k: v for k, v in result.items() if k not in ("warnings", "figures", "formulas", "code")}
    return result
