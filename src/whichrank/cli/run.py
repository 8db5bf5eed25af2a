"""whichrank run: start a job, watch it, say within seconds which rank holds it up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from whichrank.cli import COMMANDS
from whichrank.errors import UsageProblem

EPILOG = """\b
Examples:
  whichrank run -- torchrun --nproc-per-node 8 train.py
  whichrank run --keep /mnt/shared/evidence -- torchrun --nproc-per-node 8 train.py
  whichrank run --on-hang 'notify-me' -- python -m torch.distributed.run train.py

\b
Exit code: the job's own; 128 + n if signal n ended it.
"""


@click.command(
    name="run",
    epilog=EPILOG,
    short_help=COMMANDS["run"][1],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--dir", "folder", metavar="RUN", help="The run directory, on this node's own disk (default: a new one).")
@click.option("--keep", metavar="DIR", help="Copy the evidence here on a stall, a rank's death or SIGTERM.")
@click.option(
    "--keep-seconds", type=click.FloatRange(1, 600), default=20.0, metavar="S", help="That this may take (20)."
)
@click.option(
    "--share",
    metavar="DIR",
    help="Several nodes: a folder that all see, through which they hear of each other (default: the job's own store).",
)
@click.option("--on-hang", metavar="CMD", help="Run this with the report's path when a rank is stuck.")
@click.option(
    "--history",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Keep hours, ranks and end, for `whichrank history`: in your data folder, a file .db, or postgresql://… "
    "[WHICHRANK_HISTORY].",
)
@click.option("--quiet", is_flag=True, help="Say nothing; the report is in the run directory.")
@click.argument("command_line", nargs=-1, required=True, metavar="-- COMMAND …", type=click.UNPROCESSED)
def command(
    folder: str | None,
    keep: str | None,
    keep_seconds: float,
    share: str | None,
    on_hang: str | None,
    history: str | None,
    quiet: bool,
    command_line: tuple[str, ...],
) -> int:
    """Start COMMAND (torchrun or another launcher), watch its ranks, and say within seconds which one holds up the
    others, and why. Its output, signals and exit code pass through unchanged. Observes, never kills."""
    if not sys.platform.startswith("linux"):
        raise UsageProblem("`whichrank run` needs Linux (/proc)")
    if command_line[0].startswith("-"):
        raise UsageProblem(f"no such option: {command_line[0]}. The job's command comes after --")
    from whichrank.watch import front, rundir

    run = Path(os.path.abspath(folder)) if folder else rundir.default()  # noqa: PTH100 - asks no file system
    keep = os.path.abspath(keep) if keep else None  # noqa: PTH100
    share = os.path.abspath(share) if share else None  # noqa: PTH100
    place = _place(history) if history is not None else os.environ.get("WHICHRANK_HISTORY")
    return front.run(front.Options(command_line, str(run), keep, keep_seconds, on_hang, quiet, _absolute(place), share))


def _place(told: str) -> str:
    from whichrank.history.place import default_url, is_url

    if told and not is_url(told):
        raise UsageProblem(f"--history {told}: not a file .db, nor postgresql://…. The job's command comes after --")
    return told or default_url()


def _absolute(place: str | None) -> str | None:
    """As another process finds it, whatever its folder. Nothing is asked of a file system or database."""
    return os.path.abspath(os.path.expanduser(place)) if place and "://" not in place else place or None  # noqa: PTH100, PTH111
