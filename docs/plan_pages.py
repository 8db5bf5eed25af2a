"""The pages below docs/plan/: templates with the calculators' own output put in, and three guides.

A line of a template that starts with :: is replaced:

    ::run ARGS             the command and what it prints
    ::docstring MODULE     how a module describes its formula
    ::figures PREFIX …     defaults below these names, with date and source
    ::accuracy SECTION …   measured points (slow: kept as they are, unless they are measured anew)
    ::bubbles, ::point, ::summary   parts of the accuracy tables
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from importlib import import_module
from pathlib import Path

import plan_accuracy  # from bench/, which is no package
import plan_guides
import plan_points

from whichrank.plan import CALCULATORS, catalog, passes, schedules
from whichrank.plan.answer import Answer
from whichrank.plan.catalog import Figure
from whichrank.plan.inputs import questions, read
from whichrank.plan.quantities import Range
from whichrank.plan.render import terminal
from whichrank.plan.render.figures import value

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "plan"
TODAY = date(2026, 11, 30)  # pages do not change with the calendar: warnings of age are those of this day
WIDTH = 100
GENERATED = "<!-- Made by `python docs/build.py` from docs/plan/templates/ and the calculators: change those. -->\n"
GUIDE = "<!-- Made by `python docs/build.py` from docs/plan_guides/ and the calculators: change those. -->\n"

Sections = dict[str, plan_accuracy.Section]


def pages(measure: bool) -> Iterator[tuple[Path, str]]:
    """Every page; with `measure` the accuracy tables are made anew, which takes a minute."""
    sections = {each.name: each for each in plan_accuracy.measured()} if measure else None
    for template in sorted((FOLDER / "templates").glob("*.md")):
        page = FOLDER / template.name
        yield page, filled(template.read_text(encoding="utf-8"), _read(page), sections)
    for name, text in plan_guides.guides(catalog.load(today=TODAY)):
        title, _, rest = text.partition("\n")
        yield FOLDER / name, f"{title}\n\n{GUIDE}{rest}".rstrip("\n") + "\n"


def filled(template: str, old: str, sections: Sections | None) -> str:
    """A template with every directive replaced."""
    title, _, rest = template.partition("\n")
    lines = [title, "", GENERATED.rstrip("\n"), *rest.splitlines()]
    return "\n".join(_line(line, old, sections) if line.startswith("::") else line for line in lines) + "\n"


def _line(line: str, old: str, sections: Sections | None) -> str:
    name, *words = shlex.split(line[2:])
    plain: dict[str, Callable[[Sequence[str]], str]] = {"run": run, "docstring": docstring, "figures": figures}
    if name in plain:
        return plain[name](words)
    marks = (f"<!-- {line[2:]} -->", f"<!-- /{name} -->")
    if sections is None:
        kept = re.search(f"{re.escape(marks[0])}\n(.*?)\n{re.escape(marks[1])}", old, re.S)
        body = kept[1] if kept else "Not measured yet."
    else:
        measured: dict[str, Callable[[Sequence[str], Sections], str]] = {
            "accuracy": accuracy, "summary": summary, "bubbles": bubbles, "point": point,
        }  # fmt: skip
        body = measured[name](words, sections)
    return f"{marks[0]}\n{body}\n{marks[1]}"


def answered(words: Sequence[str]) -> Answer:
    """What a command line answers, at the pages' date. Only options of the calculator, and flags."""
    module = import_module(CALCULATORS[words[0]][0])
    asked = {name: question for name, question, _ in questions(module.Inputs)}
    given: dict[str, object] = {}
    rest = list(words[1:])
    while rest:
        name = rest.pop(0).removeprefix("--").replace("-", "_")
        if name != "explain":
            given[name] = True if asked[name].kind == "flag" else read(rest.pop(0), asked[name], name)
    answer: Answer = module.answer(module.plan(module.Inputs(**given), catalog.load(today=TODAY)))
    return answer


def run(words: Sequence[str]) -> str:
    printed = terminal.render(answered(words), WIDTH, explain="--explain" in words, sources=False)
    return f"```console\n$ whichrank plan {shlex.join(words)}\n{printed}```"


def docstring(words: Sequence[str]) -> str:
    text = import_module(words[0]).__doc__ or ""
    return f"```text\n{text.strip()}\n```"


def figures(prefixes: Sequence[str]) -> str:
    lines = ["| figure | value | as of | source |", "| :-- | --: | :-- | :-- |"]
    for name, figure in catalog.load(today=TODAY).figures.items():
        if isinstance(figure.value, Range) and any(name == p or name.startswith(p + ".") for p in prefixes):
            lines.append(
                f"| `{name}`{_note(figure)} | {_escaped(value(figure))} | {figure.as_of} | {_escaped(figure.source)} |"
            )
    return "\n".join(lines)


def _note(figure: Figure) -> str:
    return f" {_escaped(figure.note)}" if figure.note else ""


def _escaped(text: str) -> str:
    return re.sub(r"([|$<>*_\[\]])", r"\\\1", text)


# --- measured


def accuracy(words: Sequence[str], sections: Sections) -> str:
    parts = []
    for name in words:
        heading = f"**{plan_accuracy.TITLES[name]}**\n\n" if len(words) > 1 else ""
        parts.append(heading + plan_accuracy.markdown(sections[name]))
    return "\n\n".join(parts)


def summary(words: Sequence[str], sections: Sections) -> str:
    lines = ["| | points | mean error | left out | bar |", "| :-- | --: | --: | --: | --: |"]
    for section in sections.values():
        if section.results:
            bar = plan_accuracy.BARS.get(section.name)
            shown = "within the range" if section.name == "cost" else "" if bar is None else f"{bar:.0%}"
            count = sum(each.point.listed for each in section.results)
            errors = (section.mean(left_out=left_out, listed=True) for left_out in (False, True))
            lines.append(
                f"| {plan_accuracy.TITLES[section.name]} | {count} | "
                + " | ".join(f"{e:.1%}" for e in errors)
                + f" | {shown} |"
            )
        exact = section.verdicts
        if exact:
            right = sum(each[-1] for each in exact)
            lines.append(
                f"| {plan_accuracy.TITLES[section.name]}: has to be right | {len(exact)} | {right} right | | all |"
            )
    return "\n".join(lines)


def bubbles(words: Sequence[str], sections: Sections) -> str:
    """Profiled against simulated bubbles; interleaved counts exposed transfers as bubble here, the paper does not."""
    lines = ["| pipeline | 1F1B profiled | simulated | ZB-1p profiled | simulated |", "| :-- | --: | --: | --: | --: |"]
    book = catalog.load(today=TODAY).book()
    for entry in plan_points.load()["pipeline"]:
        if "bubble" not in entry:
            continue
        times = passes.tuned(passes.Times(*(each / 1000 for each in entry["times"])), book)
        found = [
            schedules.simulate(each, entry["stages"], entry["microbatches"], times).bubble for each in ("1f1b", "zb-1p")
        ]
        profiled = entry["bubble"][0], entry["bubble"][2]
        cells = (f"{100 * each:.1f} %" for pair in zip(profiled, found, strict=True) for each in pair)
        lines.append(f"| {entry['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def point(words: Sequence[str], sections: Sections) -> str:
    section = sections[words[0]]
    chosen = tuple(each for each in section.results if words[1] in each.point.name and each.point.listed)
    return "\n".join(plan_accuracy.markdown(replace(section, results=chosen, verdicts=())).splitlines()[:-2])


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
