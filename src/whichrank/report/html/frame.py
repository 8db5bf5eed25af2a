"""What every page shares: its frame, style sheet and policy, the answer on top, commands to copy, light and dark."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from whichrank.report.html.sections import Pill, Row

PACKAGE = "whichrank.report.html"


def part(name: str, package: str = PACKAGE) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def render(
    words: Mapping[str, Any],
    *,
    title: str,
    summary: str,
    tool: str,
    pills: Sequence[Pill] = (),
    answer: Sequence[Row] = (),
    footnotes: Sequence[str] = (),
    template: str,
    package: str = PACKAGE,
    style: str = "",
    script: str = "",
) -> bytes:
    """A page in UTF-8 that needs nothing else. `template` extends frame.html.j2; it lies in `package`, as do its own
    `style` sheet and `script` (file names), which come after those of every page. All values of `words` are escaped by
    the template, and the page's policy lets no script run but the one that is written in it.
    """
    from jinja2 import Environment, FunctionLoader
    from markupsafe import Markup

    scripts = part("common.js") + (part(script, package) if script else "")
    styles = part("page.css") + (part(style, package) if style else "")
    load = FunctionLoader(lambda name: part(name, package if name == template else PACKAGE))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=load)
    page = {
        **words,
        "title": title,
        "summary": summary,
        "tool": tool,
        "pills": pills,
        "answer": answer,
        "footnotes": footnotes,
        "style": Markup(styles),
        "script": Markup(scripts),
        "script_hash": base64.b64encode(hashlib.sha256(scripts.encode()).digest()).decode(),
    }
    return (environment.get_template(template).render(page) + "\n").encode("utf-8", "replace")
