"""whichrank digest: a node's evidence in one small file."""

from __future__ import annotations

import click

from whichrank.cli import COMMANDS, output, targets
from whichrank.errors import UsageProblem
from whichrank.report.printable import many, printable

EPILOG = """\b
Examples:
  whichrank digest /local/logs -o node-3.digest
  whichrank digest node-*.digest -o job.digest       digests merge, in any order
  whichrank job.digest                               and are evidence like any other

\b
On all nodes of a Slurm job, into a folder that they share:
  srun --ntasks-per-node=1 bash -c 'whichrank digest /local/logs --host $(hostname -s) -o digests/$(hostname -s)'
  whichrank digests/
"""


@click.command(name="digest", epilog=EPILOG, short_help=COMMANDS["digest"][1])
@click.argument("paths", nargs=-1, metavar="PATH…")
@click.option("-o", "--output", "target", metavar="FILE", required=True, help="Write to FILE; - for standard output.")
@click.option("--host", metavar="NAME", help="The host of these files: put before their names, as a folder would be.")
def command(paths: tuple[str, ...], target: str, host: str | None) -> int:
    """Reduce a node's logs and dumps to one small file, at most 64 KiB a rank.

    A digest holds what whichrank would read of the files: give it instead of them, together with others, to
    `whichrank` or once more to `whichrank digest`.
    """
    if not paths:
        raise UsageProblem("what shall be read? Give a file or a folder: `whichrank digest logs/ -o node.digest`")
    targets.check({"-o": target}, paths)
    from whichrank.evidence.parallel import processes
    from whichrank.evidence.reduce import reduce
    from whichrank.report.condense import told_alike

    progress = output.Progress()
    try:
        made = reduce(paths, host, progress.callback, processes)
    finally:
        progress.done()
    for line in told_alike((gap.what, gap.why) for gap in made.gaps):
        output.complain(printable(line))
    if not made.files:
        return 2
    output.write_bytes(made.data, target)
    ranks = f" of {made.ranks} ranks" if made.ranks > 1 else ""
    left = f"; left out: {made.lines} lines, {made.calls} calls" if made.lines or made.calls else ""
    output.complain(f"{many(made.files, 'file')}{ranks} in {len(made.data):,} bytes{left}")
    return 0
