"""An answer as one HTML page that needs nothing else: styles and plots inside, no scripts."""

from __future__ import annotations

from importlib import resources

from whichrank.plan.answer import Answer
from whichrank.plan.render import svg
from whichrank.plan.render.figures import by_source


def render(answer: Answer) -> str:
    """The page, UTF-8 text. Everything that comes from the user is escaped by the template."""
    from jinja2 import Environment
    from markupsafe import Markup

    template = (resources.files("whichrank.plan.render") / "page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    charts = [(chart.title, Markup(svg.draw(chart))) for chart in answer.charts]
    return (
        environment.from_string(template).render(answer=answer, charts=charts, sources=by_source(answer.figures)) + "\n"
    )
