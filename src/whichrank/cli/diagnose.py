"""whichrank diagnose: read what is there, reason, print the report."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from whichrank.cli import COMMANDS, output, targets
from whichrank.errors import UsageProblem
from whichrank.history.place import is_url
from whichrank.model import Report
from whichrank.report.printable import printable

EPILOG = """\b
Examples:
  whichrank logs/
  whichrank slurm-88123.out 'node-*/dmesg.txt' pyspy/
  whichrank logs/ --placement hosts.txt --world-size 64
  whichrank logs/ --since 2026-11-30T05:00 -o report.md
  whichrank logs/ --history                keep it, for `whichrank history why`
  whichrank logs/ dumps/ --html hang.html --perfetto hang.json.gz
"""
FORMS = {".json": "json", ".md": "markdown", ".html": "html", ".htm": "html"}


def iso_time(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An ISO 8601 time, with seconds and an offset: UTC where none is given, as in the report."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", value.strip()))
    except ValueError:
        hint = "write it as 2026-11-30T05:12 or 2026-11-30T05:12:44+01:00"
        raise click.BadParameter(f"{value!r} is no time; {hint}", ctx, param) from None
    if not 1990 <= found.year < 2100:
        raise click.BadParameter(f"{value!r}: no log is of that year", ctx, param)
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).isoformat()


@click.command(name="diagnose", epilog=EPILOG, short_help=COMMANDS["diagnose"][1])
@click.argument("paths", nargs=-1, metavar="PATH…")
@click.option("--json", "form", flag_value="json", help="Print JSON (docs/report.md).")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown, for an issue or a chat.")
@click.option("--html", "page", metavar="FILE", help="Also write one self-contained page with pictures.")
@click.option("--perfetto", "trace", metavar="FILE", help="Also write the timeline for ui.perfetto.dev (.gz: packed).")
@click.option("--all", "all_", is_flag=True, help="Also every cause that was weighed, and all proof.")
@click.option(
    "--redact", is_flag=True, help="Aliases for hosts, users, addresses, paths, names and secrets: to post it."
)
@click.option("--placement", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Which rank ran where.")
@click.option(
    "--world-size", type=click.IntRange(1, 200_000), metavar="N", help="Ranks of the job, if the logs do not say."
)
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Only this attempt of an elastic job.")
@click.option("--dask", metavar="ADDRESS", help="Let the workers of this Dask cluster read (tcp://HOST:8786).")
@click.option(
    "--since", callback=iso_time, metavar="TIME", help="Only what happened from this time on (ISO 8601, UTC)."
)
@click.option(
    "--history",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Keep it, for `whichrank history`: in your data folder, a file .db, or postgresql://….",
)
@click.option("--no-color", is_flag=True, help="No colours (also: NO_COLOR in the environment).")
@click.option("--width", type=click.IntRange(20, 1000), metavar="N", help="Columns to write in.")
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE; .json, .md and .html choose the form.")
def command(
    paths: tuple[str, ...],
    form: str | None,
    page: str | None,
    trace: str | None,
    all_: bool,
    redact: bool,
    history: str | None,
    no_color: bool,
    width: int | None,
    target: str | None,
    **options: Any,
) -> int:
    """Say which rank held up a dead or hung job, why, and what to change.

    PATH is a file, a folder, a glob, a .gz, a URL (s3://bucket/run/), or - for standard input: logs of ranks and launchers, kernel logs,
    scheduler output, stacks, in any mix.
    """
    if history and not is_url(history):  # `--history logs/`: the next argument is evidence
        paths, history = (history, *paths), ""
    if not paths:
        raise UsageProblem("what shall be read? Give a file or a folder: `whichrank logs/`")
    targets.check({"--html": page, "--perfetto": trace, "-o": target}, paths, [options["placement"]])
    report = _compared(_diagnosed(paths, options))
    told = report
    form = form or FORMS.get(Path(target or "").suffix.lower(), "terminal")
    drawn = "html" if page or form == "html" else "perfetto" if trace else ""
    report = _fit_to_show(report, paths, drawn, redact)
    code = report.exit_code
    if code == 2:
        for text in _nothing(report):
            output.complain(printable(text))
    if code != 2 or form == "json":
        for file, kind in ((page, "html"), (trace, "perfetto")):
            if file:
                write(report, kind, file)
        if "-" not in (page, trace):
            write(report, form, target, all=all_, width=width, colour=not no_color)
    return code if history is None or code == 2 else _kept(told, history, paths, code)


def _kept(report: Report, history: str, paths: tuple[str, ...], code: int) -> int:
    """The exit code. Where a package or the database is missing, the answer has been given all the same."""
    try:
        _keep(report, history, paths)
    except UsageProblem as problem:
        output.complain(f"not kept: {problem}")
        return 2
    return code


def _fit_to_show(report: Report, paths: tuple[str, ...], drawn: str, redact: bool) -> Report:
    """With the lines around its proofs, for a page; without private things, if so asked. drawn: "html", "perfetto", ""."""
    if drawn == "html":
        from whichrank.diagnosis import with_context

        report = with_context(report, paths)
    if redact:
        from whichrank.report.redact import redact as redacted

        report = redacted(report, pictures=bool(drawn))
    return report


def _diagnosed(paths: tuple[str, ...], options: dict[str, Any]) -> Report:
    from whichrank.diagnosis import diagnose
    from whichrank.evidence.parallel import processes

    address = options.pop("dask")
    progress = output.Progress()
    try:
        if address is None:
            return diagnose(paths, progress=progress.callback, workers=processes, **options)
        from whichrank.cli.cluster import dask

        with dask(address) as workers:
            return diagnose(paths, progress=progress.callback, workers=workers, **options)
    finally:
        progress.done()


def _compared(report: Report) -> Report:
    """Several runs: what they have in common, beside what is wrong with each."""
    if len(report.incidents) < 3:
        return report
    from whichrank.history.shared import compared

    return compared(report)


def _keep(report: Report, url: str, paths: tuple[str, ...]) -> None:
    from whichrank.history import rundirs
    from whichrank.history.kept import kept
    from whichrank.history.sources import located
    from whichrank.history.store import Store

    runs, incidents = kept(report)
    incidents = located(incidents, paths)  # they are asked for later, from another folder
    runs, others, parts = rundirs.sorted_out(runs, incidents, rundirs.found(paths))
    with Store(url or None) as store:
        new = store.keep(runs, others)
        for node, said in parts:
            whole = (
                sum(other.shared == node.shared for other, _ in parts) > 1
            )  # one of several nodes knows its own ranks
            new += store.keep_node(node, said, whole=whole)
        where = printable(store.name)
    count = len(others) + sum(len(said) for _, said in parts)
    known = count - new
    told = f"{new} new" + (f", {known} known already" if known else "") if count else "no incident, a healthy run"
    output.complain(f"kept in {where}: {told}. `whichrank history why` compares")


def write(
    report: Report, form: str, target: str | None, *, all: bool = False, width: int | None = None, colour: bool = True
) -> None:
    """A report in one of its forms."""
    if form == "html":
        from whichrank.report import html

        output.write_bytes(html.render(report), target)
    elif form == "perfetto":
        from whichrank.report import perfetto

        output.write_blocks(perfetto.render(report), target or "-")
    elif form == "json":
        from whichrank.report import json_report

        output.write_bytes(json_report.render(report), target)
    elif form == "markdown":
        from whichrank.report import markdown

        output.write_bytes(markdown.render(report, all=all).encode("utf-8", "replace"), target)
    else:
        from whichrank.report import terminal

        output.write_lines(terminal.lines(report, output.width(width), all=all), target, colour=colour)


def _nothing(report: Report) -> list[str]:
    """Why nothing was read."""
    from whichrank.report.condense import told_alike, unread

    gaps = [(gap.what, gap.why) for gap in report.gaps if "number of ranks" not in f"{gap.what}: {gap.why}"]
    unknown = [(name, "nothing in it is a log that is known here") for name in unread(report)]
    return told_alike([*gaps, *unknown]) or ["nothing that could be read"]
