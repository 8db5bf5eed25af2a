"""whichrank plan …: calculators for before a cluster exists or a run starts. Options come from each one's inputs."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from whichrank.cli import COMMANDS, output, targets
from whichrank.errors import UsageProblem
from whichrank.plan import CALCULATORS

HELP = """Calculators for before a cluster exists or a run starts: offline, with ranges, sources and dates.

Each prints how sure it is and where its defaults come from; --explain shows the formulas with numbers put in.
"""
EPILOG = """\b
Examples:
  whichrank plan tp --model llama-3.1-70b --gpu h100 --mode serving --precision fp8
  whichrank plan memory --model ./config.json --gpu a100 --method lora
  whichrank plan cost --gpus 512 --gpu b200 --set prices.b200.node=480k
  whichrank plan finetune --dataset train.jsonl --gpu h100 --gpus 8 --html -o plan.html
"""
METAVARS = {"whole": "N", "list": "N,N,…", "bytes": "SIZE", "count": "NUMBER"}
FORMS = {".json": "json", ".md": "markdown", ".html": "html"}


class Calculators(click.Group):
    """Loads a calculator when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(CALCULATORS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in CALCULATORS:
            return None
        return _calculator(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Calculators"):
            formatter.write_dl([(name, text) for name, (_, text) in CALCULATORS.items()])


@click.group(
    name="plan", cls=Calculators, help=HELP, epilog=EPILOG, short_help=COMMANDS["plan"][1],
    subcommand_metavar="CALCULATOR …", options_metavar="",
)  # fmt: skip
def command() -> None:
    pass


def _calculator(name: str) -> click.Command:
    """A command whose options are the fields of the calculator's inputs."""
    from whichrank.plan.inputs import questions, read

    module = import_module(CALCULATORS[name][0])
    asked = questions(module.Inputs)
    params: list[click.Parameter] = [_option(field, question, default) for field, question, default in asked]
    params += [
        click.Option(
            ["--set", "settings"], multiple=True, metavar="NAME=VALUE", help="Change a figure of the catalogue."
        ),
        click.Option(["--figures", "files"], multiple=True, metavar="FILE", help="TOML with figures of your own."),
        click.Option(["--explain"], is_flag=True, help="Also the formulas, with numbers put in."),
        click.Option(["--json", "form"], flag_value="json", help="Print JSON."),
        click.Option(["--markdown", "form"], flag_value="markdown", help="Print Markdown."),
        click.Option(["--html", "form"], flag_value="html", help="Print a self-contained page with plots."),
        click.Option(["--no-color"], is_flag=True, help="No colours (also: NO_COLOR in the environment)."),
        click.Option(["--width"], type=click.IntRange(20, 1000), metavar="N", help="Columns to write in."),
        click.Option(
            ["-o", "--output", "to"], metavar="FILE", help="Write to FILE; .json, .md, .html choose the form."
        ),
    ]

    def run(**options: Any) -> int:
        own = [(field, question, options.pop(field)) for field, question, _ in asked]
        given = {field: read(value, question, field) for field, question, value in own if value is not None}
        return _run(module, given, **options)

    return click.Command(
        name, params=params, callback=run, help=f"{CALCULATORS[name][1]}\n\nFormula and accuracy: docs/plan/{name}.md."
    )


def _option(field: str, question: Any, default: Any) -> click.Option:
    name = "--" + field.replace("_", "-")
    if question.kind == "flag":
        return click.Option(
            [f"{name}/--no-{name[2:]}" if default else name],
            is_flag=True,
            default=default,
            help=f"{_sentence(question.help)}.",
        )
    shown = "" if default in (None, "", 0) else f" [{_written(default)}]"
    metavar = "|".join(filter(None, question.choices)) or METAVARS.get(question.kind, question.kind.upper())
    return click.Option([name], default=None, metavar=metavar, help=f"{_sentence(question.help)}{shown}.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _written(default: Any) -> str:
    from whichrank.plan.quantities import Range, digits

    if isinstance(default, Range):
        return digits(default.likely) if default.certain else f"{digits(default.low)}-{digits(default.high)}"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _run(
    module: Any, given: dict[str, Any], *, settings: tuple[str, ...], files: tuple[str, ...], explain: bool,
    form: str | None, no_color: bool, width: int | None, to: str | None,
) -> int:  # fmt: skip
    from whichrank.plan import catalog

    targets.check({"-o": to}, files=[*files, *(value for value in given.values() if isinstance(value, str))])
    try:
        answer = module.answer(module.plan(module.Inputs(**given), catalog.load(files, settings)))
    except (ZeroDivisionError, OverflowError) as error:
        raise UsageProblem("one of these values is zero, or far too large, where something is divided by it") from error
    form = form or FORMS.get(Path(to or "").suffix.lower(), "terminal")
    output.write_bytes(_rendered(answer, form, explain, width, not no_color and not to), to)
    return 0


def _rendered(answer: Any, form: str, explain: bool, width: int | None, colour: bool) -> bytes:
    renderer = import_module(f"whichrank.plan.render.{'json_answer' if form == 'json' else form}")
    if form == "json":
        return bytes(renderer.render(answer))
    if form == "html":
        text = renderer.render(answer)
    elif form == "markdown":
        text = renderer.render(answer, explain=explain)
    else:
        colour = colour and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        text = renderer.render(answer, output.width(width), colour=colour, explain=explain)
    return str(text).encode("utf-8", "replace")
