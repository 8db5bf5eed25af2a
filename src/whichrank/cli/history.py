"""whichrank history: kept incidents, what is behind them, and a table of them for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.cli import COMMANDS, output, targets
from whichrank.cli.diagnose import iso_time
from whichrank.errors import UsageProblem

if TYPE_CHECKING:
    from whichrank.history.incident import History, Incident

EPILOG = """\b
Examples:
  whichrank logs/ --history                 diagnose, and keep it
  whichrank history --host gn-07            incidents that blame a node
  whichrank history why                     what is behind all that was kept
  whichrank history why run1/ run2/ run3/   the same from logs, without a database
  whichrank history why --html why.html     one page with pictures
  whichrank history add /dev/shm/run-17     what `whichrank run` left there
  whichrank history export incidents.csv    or .parquet

\b
The history is a file in your data folder, unless --history or WHICHRANK_HISTORY names another file or postgresql://…
"""


class Group(click.Group):
    """`whichrank history` alone, or with filters, lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    name="history",
    cls=Group,
    epilog=EPILOG,
    short_help=COMMANDS["history"][1],
    subcommand_metavar="[list | why | add | export] …",
)
def command() -> None:
    """Incidents that were kept, and what is behind them: the same node, rank, shard, or no one (docs/history.md).

    Without a command, or with the options of `list`, it lists.
    """


_URL = click.option(
    "--history", "url", metavar="URL", help="A file, or postgresql://… [WHICHRANK_HISTORY, else your data folder]."
)
_SINCE = click.option(
    "--since", callback=iso_time, metavar="TIME", help="Only incidents from this time on (ISO 8601, UTC)."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/history.md).")
_PLAIN = click.option("--no-color", is_flag=True, help="No colours (also: NO_COLOR in the environment).")
_WIDTH = click.option("--width", type=click.IntRange(20, 1000), metavar="N", help="Columns to write in.")


@command.command(name="list")
@_URL
@click.option("--host", metavar="NODE", help="Only incidents that blame this node.")
@click.option("--cause", metavar="CAUSE", help="Only this cause, or family of causes.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only incidents that blame this rank.")
@_SINCE
@click.option("--like", metavar="KEY", help="Earlier incidents most like this one (the key of a listed one).")
@click.option("--limit", type=click.IntRange(1), default=50, metavar="N", help="At most so many [50].")
@_JSON
@_PLAIN
@_WIDTH
def list_(url: str | None, host: str | None, cause: str | None, rank: int | None, since: str | None, like: str | None,
          limit: int, as_json: bool, no_color: bool, width: int | None) -> int:  # fmt: skip
    """Incidents that were kept, the latest first."""
    from whichrank.history import listing
    from whichrank.history.store import Store
    from whichrank.job.names import canon

    with Store(url, create=False) as store:
        found = store.incidents(host=canon(host) if host else None, cause=cause, rank=rank, since=_seconds(since),
                                limit=None if like else limit)  # fmt: skip
    if like:
        found = listing.alike(found, like)[:limit]
    if as_json:
        output.write_bytes(listing.as_json(found))
    else:
        output.write_lines(listing.lines(found, output.width(width)), colour=not no_color)
    return 0


@command.command(name="why")
@click.argument("runs", nargs=-1, metavar="[RUNS…]")
@_URL
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Racks, switches: topology.conf, or a table host,rack,….",
)
@click.option(
    "--half-life",
    type=click.FloatRange(min=0, min_open=True),
    metavar="DAYS",
    help="Suspicion ages: an incident counts half after so many days.",
)
@_SINCE
@_JSON
@click.option("--html", "page", metavar="FILE", help="Also write one self-contained page with pictures.")
@_PLAIN
@_WIDTH
def why_(runs: tuple[str, ...], url: str | None, topology: str | None, half_life: float | None, since: str | None,
         as_json: bool, page: str | None, no_color: bool, width: int | None) -> int:  # fmt: skip
    """What is behind the incidents: the same node, GPU, rank, rack, shard, step, time, call site, or nothing that shows.

    RUNS are folders or files of several runs' evidence, read as `diagnose` reads them; without them it is what was kept.
    """
    from whichrank.history import listing
    from whichrank.history.answer import why

    if runs and url:
        raise UsageProblem("either RUNS or --history: what was kept, or these logs")
    domains = _topology(topology)
    answer = why(_of_runs(runs) if runs else _kept(url, since), domains, half_life)
    if answer.exit_code == 2:
        output.complain("nothing that could be read" if runs else "nothing is kept in this history")
    if page and answer.exit_code != 2:
        from whichrank.history import html

        output.write_bytes(html.render(answer, None if page == "-" else Path(page).parent), page)
    if as_json:
        output.write_bytes(listing.why_json(answer))
    elif answer.exit_code != 2 and page != "-":
        output.write_lines(listing.why_lines(answer, output.width(width)), colour=not no_color)
    return answer.exit_code


@command.command(name="add")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@_URL
def add_(runs: tuple[str, ...], url: str | None) -> int:
    """Keep run directories that `whichrank run` left, archives of --keep, or folders of such: healthy runs too.

    What has no report of the whole run, since the node died or all was killed, is diagnosed.
    """
    from whichrank.history import rundirs
    from whichrank.history.store import Store

    parts = rundirs.found(runs)
    if not parts:
        raise UsageProblem(f"no directory of a `whichrank run` in {', '.join(runs)}. Logs: `whichrank LOGS --history`")
    with Store(url) as store:
        new = sum(store.keep_node(*rundirs.kept_of(part, _incidents), whole=False) for part in parts)
        name = store.name
    click.echo(
        f"kept in {name}: {len(parts)} run {'directory' if len(parts) == 1 else 'directories'}, {new} new incidents"
    )
    return 0


def _incidents(path: str) -> list[Incident]:
    """What is wrong with a run directory that nobody has diagnosed."""
    from whichrank.diagnosis import diagnose
    from whichrank.history.kept import kept
    from whichrank.history.sources import located

    report = diagnose([path])
    return [] if report.exit_code == 2 else located(kept(report)[1], [path])


@command.command(name="export")
@click.argument("file", metavar="FILE")
@_URL
@_SINCE
def export_(file: str, url: str | None, since: str | None) -> int:
    """Write all incidents, and runs without one, to FILE: .parquet, else CSV."""
    from whichrank.history.export import export
    from whichrank.history.store import Store

    with Store(url, create=False) as store:
        targets.check({"FILE": file}, files=[store.file])
        count = export(Path(file), store.incidents(since=_seconds(since)), [] if since else store.runs())
    click.echo(f"{count:,} rows written to {file}")
    return 0


def _seconds(time: str | None) -> float | None:
    from datetime import datetime

    return None if time is None else datetime.fromisoformat(time).timestamp()


def _topology(file: str | None) -> dict[str, dict[str, str]] | None:
    from whichrank.history.topology import read

    if file is None:
        return None
    try:
        return read(Path(file).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise UsageProblem(f"cannot read {file}: {error.strerror or error}") from error


def _kept(url: str | None, since: str | None) -> History:
    from whichrank.history.store import Store

    with Store(url, create=False) as store:
        return store.history(since=_seconds(since))


def _of_runs(paths: Sequence[str]) -> History:
    from whichrank.evidence.parallel import processes
    from whichrank.history.kept import history_of
    from whichrank.history.runs import reports
    from whichrank.history.sources import located

    progress = output.Progress()
    try:
        found = reports(paths, progress.callback, processes)
    finally:
        progress.done()
    history = history_of(report for report in found if report.exit_code != 2)
    return replace(history, incidents=tuple(located(history.incidents, paths)))
