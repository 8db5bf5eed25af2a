"""`# noqa` and `# noqa: WR101, WR104`: findings that a line's author has looked at."""

from __future__ import annotations

import ast
import io
import re
import tokenize

NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?", re.I)


def silenced(text: str, tree: ast.Module) -> dict[int, frozenset[str] | None]:
    """Line -> the codes that are silenced there; None for all. A comment at a statement's end holds for its first line."""
    found: dict[int, frozenset[str] | None] = {}
    if "noqa" not in text.lower():
        return found
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (match := NOQA.search(token.string)):
                codes = match["codes"]
                found[token.start[0]] = frozenset(re.findall(r"[A-Z]+[0-9]+", codes.upper())) if codes else None
    except (tokenize.TokenError, SyntaxError):
        pass  # what was read so far counts
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.excepthandler) and node.end_lineno and node.end_lineno in found:
            if not hasattr(node, "body"):
                found.setdefault(node.lineno, found[node.end_lineno])
    return found


def is_silenced(line: int, code: str, lines: dict[int, frozenset[str] | None]) -> bool:
    if line not in lines:
        return False
    codes = lines[line]
    return codes is None or code in codes
