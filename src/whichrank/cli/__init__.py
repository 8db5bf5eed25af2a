"""The command line: one small module for each command, loaded when it is called.

Only click is imported here, so that `whichrank --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from whichrank import __version__

# name, module and what `--help` says of it: a command's own module is imported only to run it
COMMANDS = {
    "diagnose": ("whichrank.cli.diagnose", "Say which rank held up a dead or hung job, why, and what to change."),
    "run": ("whichrank.cli.run", "Start a job and watch it: says within seconds which rank holds it up, and why."),
    "explain": (
        "whichrank.cli.explain",
        "Explain a log line, an exit code, a cause or a format of evidence in plain words.",
    ),
    "digest": ("whichrank.cli.digest", "Reduce a node's logs and dumps to one small file, evidence like any other."),
    "history": (
        "whichrank.cli.history",
        "Incidents that were kept; `history why`: the same node, rank, shard, or no one?",
    ),
    "lint": ("whichrank.cli.lint", "Find patterns in training code that desynchronise ranks, before it runs."),
    "preflight": (
        "whichrank.cli.preflight",
        "Before a job starts, on every rank: go or no-go, and what to change.",
    ),
    "plan": ("whichrank.cli.plan", "Calculators for before you buy or start: tp, cost, finetune, memory, job …"),
}

HELP = """Says which rank held up a hung or dead distributed PyTorch job, why, and what to change now.

Give it what the job left behind: one log is enough, more is better. A bare path means `diagnose`.
"""

EPILOG = """\b
Examples:
  whichrank logs/                      logs, kernel logs, stacks of all nodes: a folder
  whichrank slurm-*.out dmesg.txt      files and globs, also .gz
  kubectl logs worker-0 | whichrank -  standard input
  whichrank logs/ --markdown           for an issue or a chat
  whichrank logs/ --json               for a program
  whichrank explain 'exit code -9'     what a message means

\b
Exit codes:
  0  no problem found    1  a problem was diagnosed    2  wrong usage, or nothing readable
"""


class Commands(click.Group):
    """Loads a command when it is called; takes anything else for a path to diagnose."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            args = ["--help"]
        own = {name for param in self.get_params(ctx) for name in param.opts}
        if args[0] not in COMMANDS and args[0] not in own and not ctx.resilient_parsing:
            _no_typo(args[0])
            args = ["diagnose", *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _no_typo(path: str) -> None:
    """A path that is not there and reads like a command was probably meant as one."""
    try:
        if path.startswith("-") or Path(path).exists():
            return
    except OSError:
        return  # what is wrong with it is told where it is read
    from difflib import get_close_matches

    if near := get_close_matches(path, COMMANDS, 1, 0.75):
        raise click.UsageError(f"no such file or folder: {path!r}. Did you mean `whichrank {near[0]}`?")


@click.group(
    cls=Commands,
    help=HELP,
    epilog=EPILOG,
    subcommand_metavar="PATH… | COMMAND …",
    options_metavar="",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="whichrank %(version)s")
def main() -> None:
    pass
