"""What the folders of dumps say: a node's name, and which node it is where names carry ranks on the node only."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whichrank.evidence.dump_names import in_groups, local_in, named
from whichrank.facts import Fact, Gap, slashed
from whichrank.job.latest_dumps import relation
from whichrank.job.names import canon, is_label

if TYPE_CHECKING:
    from whichrank.dump import Dump

_A_HOST = re.compile(r"(?=.*\d)[A-Za-z][\w.-]*\w")


def _folder(dump: Dump) -> str:
    return slashed(dump.source.path).rpartition("/")[0]


def hosts(dumps: Sequence[Dump]) -> dict[str, str]:
    """Path of a dump -> the host after which its folder is called; only where all lie so, each host with ranks of its own."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for dump in dumps:
        if dump.rank is None:
            return {}
        ranks[_folder(dump).rpartition("/")[2]].add(dump.rank)
    names = list(ranks)
    if len(names) < 2 or sum(map(len, ranks.values())) < len(dumps):
        return {}
    if not all(_A_HOST.fullmatch(name) and not is_label(name) for name in names):
        return {}
    if len(set().union(*ranks.values())) < len(dumps):
        return {}
    return {dump.source.path: canon(_folder(dump).rpartition("/")[2]) or "" for dump in dumps}


def by_order(dumps: Sequence[Dump]) -> dict[str, int]:
    """Path -> rank where each of N folders holds the same numbers 0 to M-1 and the job has N x M ranks.

    The folders in the order of their numbers are then taken for the nodes in theirs: an assumption, to be said.
    """
    if any(dump.source.kind != "dump" for dump in dumps):
        return {}
    folders: dict[str, dict[int, Dump]] = defaultdict(dict)
    for dump in dumps:
        number = local_in(dump.source.path)
        own = named(dump.source.path)
        number = number if number is not None else own.rank if own is not None else None
        if number is None or number in folders[_folder(dump)]:
            return {}
        folders[_folder(dump)][number] = dump
    sizes = {frozenset(found) for found in folders.values()}
    if len(folders) < 2 or len(sizes) != 1:
        return {}
    each = len(next(iter(sizes)))
    worlds = {_world(dump) for dump in dumps}
    if next(iter(sizes)) != frozenset(range(each)) or worlds != {each * len(folders)}:
        return {}
    one, other = (folders[folder] for folder in sorted(folders)[:2])
    if any(relation(one[number], other[number]) != "beside" for number in one):
        return {}  # an earlier attempt's, or copies
    found = {}
    for node, folder in enumerate(sorted(folders, key=_natural)):
        for local, dump in folders[folder].items():
            rank = node * each + local
            if not in_groups(dump, rank):
                return {}
            found[dump.source.path] = rank
    return found


def _world(dump: Dump) -> int:
    """How many ranks the default group lists; 0 where it lists none."""
    return max((len(group.members) for group in dump.groups if group.members), default=0)


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def assumed(found: dict[str, int]) -> Gap:
    first = min(found)
    why = (
        "names carry ranks on the node only, the same in each folder: the folders are taken for the nodes in their order. "
        "Which file it is, is sure; which rank, is not"
    )
    return Gap(
        slashed(first).rpartition("/")[0].rpartition("/")[0] or first,
        why,
        "--placement FILE: which node has which ranks",
    )


def with_hosts(facts: list[Fact], homes: dict[str, str]) -> list[Fact]:
    return [
        replace(fact, who=replace(fact.who, host=homes[fact.spot.source.path]))
        if fact.kind == "dump" and fact.who.host is None and homes.get(fact.spot.source.path)
        else fact
        for fact in facts
    ]
