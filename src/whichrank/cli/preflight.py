"""whichrank preflight: before a job starts, on every rank: go or no-go, and what to change."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whichrank.cli import COMMANDS, output
from whichrank.errors import UsageProblem

if TYPE_CHECKING:
    from whichrank.preflight.place import Place

SKIPPABLE = ("connections", "gpus", "storage", "bandwidth", "collective")
EPILOG = """\b
Examples:
  srun python -m whichrank.preflight --path /data --path /checkpoints
  torchrun --nnodes 4 --nproc-per-node 8 --rdzv-endpoint … -m whichrank.preflight
  RANK=3 WORLD_SIZE=4 MASTER_ADDR=node-a whichrank preflight     on each node, by hand
  whichrank preflight                                           this node alone

\b
Exit codes:
  0  go    1  no-go    2  wrong usage
"""


@click.command(name="preflight", epilog=EPILOG, short_help=COMMANDS["preflight"][1])
@click.option("--path", "paths", multiple=True, metavar="DIR", help="Storage to try, from every rank at once.")
@click.option("--script", metavar="FILE", help="The training script: has to be the same on every rank.")
@click.option("--backend", type=click.Choice(["nccl", "gloo"]), help="As the job will use (nccl where there are GPUs).")
@click.option("--workers", metavar="N[:SIZE]", help="DataLoader workers of a rank, and memory of each (2:1.5GiB).")
@click.option("--min-gbps", type=click.FloatRange(0), metavar="N", help="What every link has to carry (0.5).")
@click.option("--busbw", type=click.FloatRange(0), metavar="N", help="busbw that all_reduce has to reach, in GB/s.")
@click.option("--skip", multiple=True, type=click.Choice(SKIPPABLE), help="Leave a check out.")
@click.option("--seconds", type=click.FloatRange(5, 3600), default=60.0, metavar="N", help="For all of it (60).")
@click.option("--wait", type=click.FloatRange(1, 3600), default=30.0, metavar="N", help="For ranks to come (30).")
@click.option("--ranks", type=click.IntRange(1, 64), metavar="N", help="Without a launcher: ranks on this node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-o", "--output", "to", metavar="FILE", help="Write to FILE; .json chooses the form.")
@click.option("--no-color", is_flag=True, help="No colours (also: NO_COLOR in the environment).")
def command(**options: Any) -> int:
    """Runs on every rank, where the job would run, within a minute: says whether the job would hang before its first
    step, with the rank, node, pair or setting by name. Rank 0 prints the answer."""
    if not sys.platform.startswith("linux"):
        raise UsageProblem("`whichrank preflight` needs Linux")
    from whichrank.preflight import place

    here = place.place(os.environ)
    if here is None:
        return _alone(options)
    if options["ranks"]:
        raise UsageProblem(
            f"--ranks is for a node without a launcher; here {here.launcher} has set the number of ranks"
        )
    return _take_part(here, options)


def _alone(options: dict[str, Any]) -> int:
    """No launcher: it is the launcher of a few ranks here."""
    from whichrank.preflight import start

    _asked(options)  # wrong usage is told once
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if nodes not in ("", "1"):
        output.complain(
            f"this node alone; `srun python -m whichrank.preflight` checks all {nodes} nodes of the allocation"
        )
    count = options["ranks"] or len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) or 2
    return start.local(count, _words(options))


def _words(options: dict[str, Any]) -> list[str]:
    """The options again, for the ranks."""
    words: list[str] = []
    for name, flag in (("paths", "--path"), ("skip", "--skip")):
        for value in options[name]:
            words += [flag, value]
    for name in ("script", "backend", "workers", "min_gbps", "busbw", "seconds", "wait"):
        if options[name] is not None:
            words += [f"--{name.replace('_', '-')}", str(options[name])]
    if options["to"]:
        words += ["-o", options["to"]]
    return [*words, *(["--json"] if options["as_json"] else []), *(["--no-color"] if options["no_color"] else [])]


def _asked(options: dict[str, Any]) -> Any:
    from whichrank.preflight.conduct import Asked

    asked = Asked(
        tuple(os.path.abspath(path) for path in options["paths"]),  # noqa: PTH100 - asks no file system
        options["script"],
        options["backend"],
        _workers(options["workers"]),
        options["seconds"],
        options["wait"],
        busbw=options["busbw"],
        skip=frozenset(options["skip"]),
    )
    return asked if options["min_gbps"] is None else replace(asked, least_gbps=options["min_gbps"])


def _workers(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?::(\d+(?:\.\d+)?)\s*([KMGT])i?B?)?", text)
    if match is None:
        raise UsageProblem(f"--workers {text}: give a number, or a number and a size (8:1.5GiB)")
    return int(match[1]), int(float(match[2] or 1) * 1024 ** ("KMGT".index(match[3] or "G") + 1))


def _take_part(here: Place, options: dict[str, Any]) -> int:
    from whichrank.preflight import start
    from whichrank.report.printable import printable

    got = start.take_part(here, _asked(options), output.complain, lambda answer: _show(answer, options))
    if isinstance(got, start.Alone):
        output.complain(f"NO-GO  {printable(got.says)}")
        output.complain(f"  do   {printable(got.do)}")
        code = 1
    else:
        code = 0 if got else 1
    _leave(code)
    return code


def _show(answer: Any, options: dict[str, Any]) -> None:
    to = options["to"]
    if options["as_json"] or (to or "").endswith(".json"):
        from whichrank.preflight import json_answer

        output.write_bytes(json_answer.render(answer), to)
    else:
        from whichrank.preflight import terminal

        output.write_lines(terminal.lines(answer, output.width()), to, colour=not options["no_color"])


def _leave(code: int) -> None:
    """At once: a thread that waits for a dead mount or name server must not keep the rank here."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
