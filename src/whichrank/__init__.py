"""whichrank: which rank held the others up, why, and what to change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichrank.diagnosis import diagnose
    from whichrank.record import phase, watch
    from whichrank.report.redact import redact

__version__ = "0.1.0"
__all__ = ["__version__", "diagnose", "phase", "redact", "watch"]


def __getattr__(name: str) -> Any:
    # `whichrank --help` must not wait for what only a diagnosis needs.
    if name == "diagnose":
        from whichrank.diagnosis import diagnose

        return diagnose
    if name == "redact":
        from whichrank.report.redact import redact

        return redact
    if name in ("phase", "watch"):
        record = sys.modules.get("_whichrank_record")  # has begun with the interpreter, see record/inject
        if record is None:
            from whichrank import record
        return globals().setdefault(name, getattr(record, name))
    raise AttributeError(name)
