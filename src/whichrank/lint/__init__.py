"""Static checks of training code for what desynchronises ranks. Nothing of the code is run, and torch is not needed.

Each function is followed on several ranks at once (`run.py`, `statements.py`, `expressions.py`, `calls.py`): conditions on
the rank's number are computed, conditions on a rank's own state are followed both ways, and what comes out is each rank's
trace of collectives (`trace.py`). `diverge.py` compares them. What is unknown is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whichrank.lint import files, noqa
from whichrank.lint.check import check
from whichrank.lint.files import Unread
from whichrank.lint.report import Found


@dataclass(slots=True)
class Result:
    found: list[Found] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    files: int = 0


def lint(paths: Sequence[str], wanted: Callable[[str], bool] = lambda code: True) -> Result:
    """All findings below paths, in the order of files and lines. wanted: whether a rule's code is asked for."""
    result = Result()
    for path in files.find(paths):
        read = files.read(path) if isinstance(path, str) else path
        if isinstance(read, Unread):
            result.unread.append(read)
            continue
        text, tree = read
        result.files += 1
        silenced = noqa.silenced(text.text, tree)
        for finding in check(tree, text.text):
            if wanted(finding.code) and not noqa.is_silenced(finding.line, finding.code, silenced):
                result.found.append(Found(text, finding))
    return result
