"""whichrank lint: what in training code lets ranks part company, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whichrank.cli import COMMANDS, output
from whichrank.errors import UsageProblem

if TYPE_CHECKING:
    from whichrank.lint.rules import Rule

EPILOG = """\b
Examples:
  whichrank lint train.py src/
  whichrank lint --ignore WR201 .
  whichrank lint --explain WR104

\b
Exit codes:
  0  nothing found    1  something was found    2  wrong usage, or a file that can't be read
"""


@click.command(name="lint", epilog=EPILOG, short_help=COMMANDS["lint"][1])
@click.option(
    "--select", multiple=True, metavar="CODES", help="Only these rules: WR101,WR104, or WR1 for all that begin so."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these rules.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--explain", metavar="CODE", help="What a rule finds, why that hangs, what to write instead.")
@click.option("-o", "--output", "to", metavar="FILE", help="Write to FILE.")
@click.argument("paths", nargs=-1, metavar="PATH…")
def command(
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    as_json: bool,
    explain: str | None,
    to: str | None,
    paths: tuple[str, ...],
) -> int:
    """Find patterns that desynchronise ranks in training code: files, folders, notebooks, or - for standard input.

    The code is read, never run. `# noqa` or `# noqa: WR101` at a line's end silences it.
    """
    from whichrank.lint import lint, report
    from whichrank.report.printable import printable

    if explain:
        output.write_bytes(report.explained(_rule(explain)).encode(), to)
        return 0
    if not paths:
        raise UsageProblem("nothing to lint: name files or folders, such as `whichrank lint .`")
    chosen, not_chosen = _codes("--select", select), _codes("--ignore", ignore)
    result = lint(
        paths, lambda code: code.startswith(chosen or "WR") and not (not_chosen and code.startswith(not_chosen))
    )
    for unread in result.unread:
        output.complain(f"{printable(unread.path)}: {printable(unread.why)}")
    if not result.files and not result.unread:
        raise UsageProblem("no .py or .ipynb file in there")
    told = (
        report.as_json(result.found, result.unread, result.files)
        if as_json
        else report.lines(result.found, result.files)
    )
    output.write_bytes((told if as_json else printable_lines(told)).encode("utf-8", "replace"), to)
    if result.found:
        return 1
    return 2 if result.unread else 0


def printable_lines(text: str) -> str:
    """File names may hold anything; each line is shown without control characters."""
    from whichrank.report.printable import printable

    return "".join(f"{printable(line)}\n" for line in text.split("\n")[:-1])


def _rule(code: str) -> Rule:
    from whichrank.lint.rules import BY_CODE, BY_NAME

    found = BY_CODE.get(code.upper()) or BY_NAME.get(code.lower())
    if found is None:
        raise UsageProblem(f"no rule {code!r}: there are {', '.join(BY_CODE)}")
    return found


def _codes(option: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Codes or beginnings of codes, each of which some rule has."""
    from whichrank.lint.rules import BY_CODE

    codes = tuple(code.strip().upper() for each in given for code in each.split(",") if code.strip())
    for code in codes:
        if not any(known.startswith(code) for known in BY_CODE):
            raise UsageProblem(f"{option} {code}: no rule begins so; there are {', '.join(BY_CODE)}")
    return codes
