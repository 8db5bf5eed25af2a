"""whichrank explain: a message, a number, a cause or a format of evidence in plain words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click

from whichrank.cli import COMMANDS, output
from whichrank.errors import UsageProblem

LONGEST = 1 << 20  # bytes of a text that is explained line by line; more is for `diagnose`
EPILOG = """\b
Examples:
  whichrank explain                    all causes and formats of evidence
  whichrank explain host_oom
  whichrank explain kernel             what a kernel log settles, and how to get one
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
@click.argument("text", nargs=-1, type=click.UNPROCESSED, metavar="[TEXT | CAUSE | EVIDENCE | -]")
def command(text: tuple[str, ...], no_color: bool, width: int | None) -> int:
    """Explain a log line, an exit code, an Xid, a cause, a format of evidence or a word of a report. Works offline.

    TEXT may be several lines, the name of a small file, also packed, or - for standard input. Without it: what there is.
    """
    from whichrank.report import explain, explain_evidence, explain_lines

    asked = _text(text)
    if not asked.strip() and not text:
        output.write_lines(explain_lines.index(explain_evidence.index(), output.width(width)), colour=not no_color)
        return 0
    found = explain.explain(asked)
    if not found:
        near = explain_evidence.nearest(asked)
        raise UsageProblem(
            f"nothing in this text is known. Did you mean {' or '.join(near)}?"
            if near
            else "nothing in this text is known. Paste the line as it stands in the log, or name a cause: "
            "`whichrank explain host_oom`. All names: `whichrank explain`"
        )
    output.write_lines(explain_lines.lines(found, output.width(width)), colour=not no_color)
    return 0


def _text(words: tuple[str, ...]) -> str:
    """What is asked; nothing where nobody asks: no words, and a terminal or an empty pipe behind standard input."""
    if not words and sys.stdin.isatty():
        return ""
    if not words or words == ("-",):
        return _read("-", sys.stdin.buffer)
    if len(words) == 1 and _is_file(words[0]):
        try:
            with Path(words[0]).open("rb") as file:
                return _read(words[0], file)
        except OSError as error:
            raise UsageProblem(f"cannot read {words[0]}: {error.strerror or error}") from error
    return " ".join(words)


def _read(name: str, stream: BinaryIO) -> str:
    """The beginning of a text, unpacked as `diagnose` does it: as far as it goes where the file is cut or damaged."""
    from whichrank.evidence.unpack import Budget, members
    from whichrank.facts import Gap

    wrong = ""
    for member in members(name, stream, Budget()):
        if isinstance(member, Gap):
            wrong = wrong or f"{member.what}: {member.why}"
            continue
        data = b""
        for block in member.blocks:
            data += block
            if len(data) >= LONGEST:
                break
        if data:
            return data[:LONGEST].decode("utf-8", "replace")
    if wrong:
        raise UsageProblem(wrong)
    return ""


def _is_file(word: str) -> bool:
    try:
        return len(word) < 4096 and "\n" not in word and Path(word).is_file()
    except (OSError, ValueError):
        return False
