"""The report as one page that needs nothing else: no network, no script or font from elsewhere.

What the terminal says comes first; below it pictures of the dumps: the grid of ranks and sequence numbers, the wait-for
graph, calls that differ side by side. Log text and names in dumps are hostile: the template escapes all of it, drawings
are escaped where they are made, data lies in a block that cannot be closed from within, scripts put texts on the page as
text only, and the page's own policy lets no script run but the one that is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from whichrank import __version__
from whichrank.findings.dumps.lateness import NOISE
from whichrank.findings.dumps.trace import Traced
from whichrank.findings.dumps.waits import Waits, waits
from whichrank.job.collectives import Collectives
from whichrank.model import Report, Verdict
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.html import cluster, draw, frame, graph, late, sections
from whichrank.report.html.departure import apart, group_apart
from whichrank.report.html.grid import LETTERS, Grids, grids
from whichrank.report.html.logs import grids_of_report
from whichrank.report.printable import printable
from whichrank.report.summary import summary

LEGEND = (
    ("D", "ended"),
    ("W", "waiting in it"),
    ("Q", "made, behind an older one"),
    ("A", "did not arrive"),
    ("N", "no dump of this rank"),
    ("G", "ring no longer holds it"),
    ("M", "made (only open calls were dumped)"),
    ("U", "not known"),
)
FOLD = 24  # ranks of a group from which on those that stand alike are shown as one


def render(report: Report) -> bytes:
    """The page in UTF-8. Without dumps (`report.table`) the pictures are made of the ranks as the logs tell of them."""
    verdict = report.verdicts[0] if report.verdicts else None
    return frame.render(
        _words(report, verdict) | _pictures(report, verdict),
        title=printable(verdict.says) if verdict else "Nothing that could be read tells of a training job.",
        summary=summary(report),
        tool=printable(report.tool or f"whichrank {__version__}"),
        pills=sections.pills(verdict) if verdict else (),
        answer=sections.answer(verdict) if verdict else (),
        footnotes=[printable(note) for note in report.footnotes],
        template="page.html.j2",
        script="page.js",
    )


def _pictures(report: Report, verdict: Verdict | None) -> dict[str, Any]:
    """What is drawn."""
    from markupsafe import Markup

    table, traced = report.table, report.told.traced if report.told else None
    hang = verdict is not None and verdict.cause != "none"
    culprits = frozenset(verdict.culprit_ranks if verdict else ())
    if traced is not None and hang and not culprits:
        culprits = frozenset(traced.culprits)
    hosts = {row.rank: row.host for row in report.ranks if row.host}
    waiting = waits(table) if table is not None else None
    drawn = _grids(report, table, traced, waiting, culprits)
    nodes = graph.from_dumps(table, waiting, culprits, hosts) if table and waiting and hang else []
    nodes = nodes or graph.from_report(report)
    return {
        "hang": hang,
        "of_dumps": table is not None,
        "grids": drawn,
        "stage": _height(drawn),
        "legend": LEGEND if hang else [(state, "not made yet" if state == "A" else name) for state, name in LEGEND],
        "data": Markup(_data(drawn, culprits, hosts, hang)),
        "graph": Markup(draw.graph(nodes)) if nodes else "",
        "nodes": nodes,
        "rank_ranges": rank_ranges,
        "apart": apart(table, traced) if table and traced and hang else None,
        "late": _lateness(report),
        "cluster": Markup(cluster.draw(report)),
    }


def _words(report: Report, verdict: Verdict | None) -> dict[str, Any]:
    """What is said."""
    steps, left = sections.timeline(report)
    gaps, more_gaps = sections.missing(report)
    ranks, every = sections.ranks(report), sections.ranks(report, 256)
    return {
        "report": report,
        "verdict": verdict,
        "incidents": sections.incidents(report),
        "shared": sections.shared(report),
        "proof": sections.lines(verdict.because, report.around) if verdict else (),
        "against": sections.lines(verdict.against, report.around) if verdict else (),
        "ranks": ranks,
        "more_ranks": every if len(every) > len(ranks) else (),
        "steps": steps,
        "steps_left": left,
        "alternatives": sections.alternatives(report),
        "checks": sections.checks(verdict) if verdict else (),
        "gaps": gaps,
        "more_gaps": more_gaps,
        "weighed": sections.weighed(report),
    }


def _lateness(report: Report) -> dict[str, Any] | None:
    from markupsafe import Markup

    found = report.told.late if report.told else None
    if found is None:
        return None
    plot = draw.lateness(late.bars(found), frozenset(found.ranks), NOISE) if found.late or found.what != "none" else ""
    return {"says": late.says(found), "plot": Markup(plot), "rows": late.rows(found) if plot else ()}


def _grids(
    report: Report, table: Collectives | None, traced: Traced | None, waiting: Waits | None, culprits: frozenset[int]
) -> Grids:
    if table is None or waiting is None:
        return grids_of_report(report, culprits)
    apart_in, main = (group_apart(table, traced), traced.group) if traced else (None, None)
    return grids(table, waiting, culprits, apart_in, main)


def _height(drawn: Grids) -> int:
    """Pixels that the first grid takes: known before a script runs, so that nothing moves when it does."""
    if not drawn.grids:
        return 0
    members = sum(count for _, count in drawn.grids[0].ranks)
    return max(120, min(440, 60 + 26 * (len(drawn.grids[0].patterns) if members > FOLD else members)))


def _data(drawn: Grids, culprits: frozenset[int], hosts: Mapping[int, str], hang: bool) -> str:
    """What the grid's script reads, as JSON that no markup can begin or end in."""
    names: dict[str, int] = {}
    of = [[rank, names.setdefault(printable(host), len(names))] for rank, host in sorted(hosts.items())]
    found = {
        "letters": LETTERS,
        "culprits": sorted(culprits),
        "calls": drawn.calls,
        "groups": drawn.grids,
        "hosts": list(names),
        "host": _host_runs(of),
        "hang": hang,
        "left": drawn.left_out,
        "fold": FOLD,
    }
    text = msgspec.json.encode(found).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _host_runs(pairs: Sequence[Sequence[int]]) -> list[list[int]]:
    """(first rank, how many, host) of neighbours on one host."""
    runs: list[list[int]] = []
    for rank, host in pairs:
        if runs and runs[-1][2] == host and runs[-1][0] + runs[-1][1] == rank:
            runs[-1][1] += 1
        else:
            runs.append([rank, 1, host])
    return runs
