"""whichrank explain: a message, a number or a cause in plain words."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from whichrank.cli import COMMANDS, output
from whichrank.errors import UsageProblem

LONGEST = 1 << 20  # bytes of a text that is explained line by line; more is for `diagnose`
EPILOG = """\b
Examples:
  whichrank explain host_oom
  whichrank explain -9
  whichrank explain Xid 79
  whichrank explain 'Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, …'
  tail -50 rank3.log | whichrank explain -
"""


@click.command(
    name="explain", epilog=EPILOG, short_help=COMMANDS["explain"][1], context_settings={"ignore_unknown_options": True}
)
@click.option("--no-color", is_flag=True, help="No colours (also: NO_COLOR in the environment).")
@click.option("--width", type=click.IntRange(20, 1000), metavar="N", help="Columns to write in.")
@click.argument("text", nargs=-1, type=click.UNPROCESSED, metavar="TEXT | CAUSE | -")
def command(text: tuple[str, ...], no_color: bool, width: int | None) -> int:
    """Explain a log line, an exit code, an Xid, or a cause or word of a report in plain words. Works offline.

    TEXT may be several lines, the name of a small file, or - for standard input.
    """
    from whichrank.report import explain, explain_lines

    found = explain.explain(_text(text))
    if not found:
        raise UsageProblem(
            "nothing in this text is known. Paste the line as it stands in the log, or name a cause: "
            "`whichrank explain host_oom`"
        )
    output.write_lines(explain_lines.lines(found, output.width(width)), colour=not no_color)
    return 0


def _text(words: tuple[str, ...]) -> str:
    if not words and sys.stdin.isatty():
        raise UsageProblem("what shall be explained? Give a line, a number or a cause: `whichrank explain -9`")
    if not words or words == ("-",):
        return sys.stdin.buffer.read(LONGEST).decode("utf-8", "replace")
    if len(words) == 1 and _is_file(words[0]):
        try:
            with Path(words[0]).open("rb") as file:
                return file.read(LONGEST).decode("utf-8", "replace")
        except OSError as error:
            raise UsageProblem(f"cannot read {words[0]}: {error.strerror or error}") from error
    return " ".join(words)


def _is_file(word: str) -> bool:
    try:
        return len(word) < 4096 and "\n" not in word and Path(word).is_file()
    except (OSError, ValueError):
        return False
