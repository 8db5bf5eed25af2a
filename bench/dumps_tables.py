"""Tables of how often dumps are answered right: by mode, by kind, and a list of what went wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from dumps_judge import Row, Scored
from lab.simulate.draw import Wishes
from robustness import interval

KINDS = Wishes().kinds


def share(rows: Iterable[Row], of: Callable[[Row], bool | None]) -> str:
    told = [value for value in map(of, rows) if value is not None]
    return f"{interval(sum(told), len(told))} of {len(told)}" if told else "-"


MEASURES: dict[str, Callable[[Row], bool | None]] = {
    "exact": lambda row: row.exact if row.truth["identifiable"] else None,
    "among 3": lambda row: row.contained,
    "honest": lambda row: None if row.truth["identifiable"] else row.fair,
    "mechanism": lambda row: row.mechanism if row.truth["identifiable"] else None,
    "mechanism, all": lambda row: row.mechanism,
    "cause": lambda row: row.cause,
    "false certainty": lambda row: row.falsely_sure,
    "of ranks": lambda row: row.names_innocent,
    "cause too sure": lambda row: row.cause_too_sure,
    "hang claimed": lambda row: row.claims_hang,
}


def table(title: str, groups: dict[str, list[Row]], peers: dict[str, list[Row]]) -> None:
    everything = [row for rows in groups.values() for row in rows]
    measures = {name: of for name, of in MEASURES.items() if any(of(row) is not None for row in everything)}
    beside = ["torchfrtrace exact", "its false certainty", "it says nothing"] if peers else []
    print(f"\n| {' | '.join([title, 'incidents', *measures, *beside])} |")
    print("|---" * (2 + len(measures) + len(beside)) + "|")
    for name, rows in groups.items():
        cells = [name, str(len(rows)), *(share(rows, of) for of in measures.values())]
        if peers:
            theirs = peers.get(name, [])
            cells += [share(theirs, MEASURES["exact"]), share(theirs, MEASURES["false certainty"])]
            cells.append(share(theirs, lambda row: bool(row.answer.error)))
        print(f"| {' | '.join(cells)} |")


def grouped(rows: Iterable[Row], by: Callable[[Row], Sequence[str]], names: Sequence[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {name: [] for name in names}
    for row in rows:
        for name in by(row):
            found[name].append(row)
    return {name: members for name, members in found.items() if members}


def tables(scored: Sequence[Scored]) -> None:
    rows = [each.ours for each in scored]
    peers = [each.peer for each in scored if each.peer]
    by_mode = order([name for row in rows for name in row.modes])
    by_kind = sorted({row.truth["kind"] for row in rows}, key=lambda kind: KINDS.index(kind) if kind in KINDS else 99)
    for title, names, by in (
        ("all", ["all"], lambda row: ["all"]),
        ("mode", by_mode, lambda row: row.modes),
        ("kind", by_kind, lambda row: [row.truth["kind"]]),
    ):
        table(title, grouped(rows, by, names), grouped(peers, by, names) if peers else {})
    said = sorted(row.answer.seconds for row in rows)
    print(f"\nseconds an answer: median {said[len(said) // 2]:.3f}, at most {said[-1]:.2f}")
    for whose, errors in (
        ("whichrank", Counter(row.answer.error for row in rows if row.answer.error)),
        ("torchfrtrace", Counter(re.sub(r"\d+", "N", row.answer.error)[:90] for row in peers if row.answer.error)),
    ):
        for why, count in errors.most_common(12):
            print(f"{whose}: {count} x {why}")


def misses(scored: Sequence[Scored]) -> None:
    print(
        "\n| incident | kind, world | mode | truth: ranks, mechanism | answer: ranks, mechanism, grade | wrong | why it can be told |"
    )
    print("|---" * 7 + "|")
    for row in (each.ours for each in scored):
        if not row.missed:
            continue
        truth, said = row.truth, row.answer
        wrong = [name for name, is_wrong in (
            ("error", bool(said.error)), ("ranks", row.exact is False and truth["identifiable"]),
            ("mechanism", not row.mechanism), ("FALSE CERTAINTY", row.falsely_sure), ("hang claimed", row.claims_hang),
        ) if is_wrong]  # fmt: skip
        mode = truth.get("mode", {})
        short = [
            f"{mode.get('backend')} {mode.get('version')}",
            f"frames {mode.get('frames')}",
            f"ring {mode.get('ring')}",
        ]
        short += ["start events"] * bool(mode.get("start_events")) + ["JSON"] * bool(mode.get("json"))
        short += [f"missing {mode['missing']}"] * bool(mode.get("missing")) + ["active only"] * bool(
            mode.get("only_active")
        )
        short += [name for name in row.modes if name.startswith("evidence")]
        cells = [
            row.folder or row.incident, f"{truth['kind']}, {truth['world']}", ", ".join(short),
            f"{truth['culprits']}, {truth['mechanism']}{'' if truth['identifiable'] else ' (not to be told)'}",
            said.error or f"{said.named}, {said.mechanism}, {said.rank_grade}; {said.cause} {said.grade}",
            ", ".join(wrong), truth.get("reason", ""),
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |")


def order(names: Sequence[str]) -> list[str]:
    """Rows of the table by mode, those of one question together."""
    heads = (
        "evidence", "all dumps", "10%", "25%", "start", "frames", "ring", "version list", "version 1", "version 2.1",
        "version", "pickle", "JSON", "backend", "dumped", "active", "stale", "clocks", "world",
    )  # fmt: skip

    def place(name: str) -> tuple[int, str]:
        return next((at for at, head in enumerate(heads) if name.startswith(head)), len(heads)), name

    return sorted(set(names), key=place)
