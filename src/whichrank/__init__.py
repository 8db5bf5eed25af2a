"""whichrank: which rank held the others up, why, and what to change."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "diagnose", "redact"]


def __getattr__(name: str) -> Any:
    # `whichrank --help` must not wait for what only a diagnosis needs.
    if name == "diagnose":
        from whichrank.diagnosis import diagnose

        return diagnose
    if name == "redact":
        from whichrank.report.redact import redact

        return redact
    raise AttributeError(name)
