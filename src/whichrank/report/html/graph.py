"""Who waits for whom, folded: ranks with the same standing are one node, so that 4,096 ranks fit on a page.

From dumps: each unfinished call is a node with the ranks that it holds, and leads to the ranks that keep it from ending.
Nodes that cannot be told apart by their operation and by what they lead to are one. What all waiting ends in is at the
root. Without dumps the same picture is drawn from the table of ranks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from whichrank.dump import NEVER
from whichrank.findings.dumps.calls import operation as called
from whichrank.findings.dumps.waits import Call, Waits
from whichrank.job.collectives import Collectives
from whichrank.model import Report, Verdict
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.condense import operation, rank_groups
from whichrank.report.html import shown
from whichrank.report.printable import many, printable
from whichrank.report.summary import named

MOST = 24  # nodes
ROUNDS = 12  # of telling nodes apart by what they lead to

Key = Call | int  # an unfinished call, or a rank without one


@dataclass(frozen=True, slots=True)
class Node:
    """role: culprit, root (all waiting ends there, nobody is to blame for sure), no_dump, waiting.

    to: numbers of the nodes that it waits for. depth: steps from the root. stack: where one of its ranks stands in the
    code, innermost first, and which rank that is.
    """

    role: str
    ranks: tuple[int, ...]
    title: str
    what: str
    to: tuple[int, ...]
    depth: int
    since: str = ""
    stack: tuple[str, ...] = ()
    stack_of: str = ""


def from_dumps(
    table: Collectives, waits: Waits, culprits: Iterable[int], hosts: Mapping[int, str] | None = None
) -> list[Node]:
    """The nodes, roots first; empty where nothing is unfinished. hosts: of ranks, as far as they are known."""
    graph = _Graph(table, waits, frozenset(culprits), hosts or {})
    for fineness in range(4):
        nodes = graph.folded(fineness)
        if len(nodes) <= MOST:
            break
    return nodes


class _Graph:
    def __init__(self, table: Collectives, waits: Waits, culprits: frozenset[int], hosts: Mapping[int, str]) -> None:
        self.table, self.waits, self.culprits, self.hosts = table, waits, culprits, hosts
        self.to: dict[Key, tuple[Key, ...]] = {}
        for call, standing in waits.calls.items():
            # Where somebody in a call is known to be at fault, members of whom nothing is known explain it no better.
            doubts = () if culprits.intersection(waits.holders(call)) else standing.doubts
            after = [waits.call_of.get(rank, rank) for rank in standing.blockers or doubts]
            self.to[call] = tuple(dict.fromkeys(key for key in after if key != call))
        for ends in list(self.to.values()):
            for key in ends:
                self.to.setdefault(key, ())
        self.depth = _depths(self.to, [key for key in self.to if culprits.intersection(self.ranks(key))])

    def ranks(self, key: Key) -> list[int]:
        return [key] if isinstance(key, int) else self.waits.holders(key)

    def folded(self, fineness: int) -> list[Node]:
        classes = self._classes(fineness)
        members: dict[int, list[Key]] = {}
        for key, number in classes.items():
            members.setdefault(number, []).append(key)
        order = sorted(members, key=lambda number: self._order(members[number]))
        place = {number: at for at, number in enumerate(order)}
        at = {key: place[of] for key, of in classes.items()}
        return self._apart([self._node(members[number], at) for number in order], [members[number] for number in order])

    def _apart(self, nodes: list[Node], keys: Sequence[Sequence[Key]]) -> list[Node]:
        """A culprit that is in one call with its victims is a node of its own, for which they wait."""
        found = list(nodes)
        for number, node in enumerate(nodes):
            others = tuple(rank for rank in node.ranks if rank not in self.culprits)
            if node.role == "culprit" and others:
                own = tuple(rank for rank in node.ranks if rank in self.culprits)
                found[number] = replace(node, ranks=own, title=self._title(own), what=self._waiting(keys[number], own))
                waiting = replace(
                    node,
                    role="waiting",
                    ranks=others,
                    title=self._title(others),
                    what=self._waiting(keys[number], others),
                    to=(number,),
                    depth=node.depth + 1,
                    stack=(),
                    stack_of="",
                )
                found.append(waiting)
        return found

    def _order(self, keys: Sequence[Key]) -> tuple[int, int, int]:
        ranks = [rank for key in keys for rank in self.ranks(key)]
        blamed = bool(self.culprits.intersection(ranks))
        return (min(self.depth[key] for key in keys), 0 if blamed else 1, min(ranks, default=0))

    def _classes(self, fineness: int) -> dict[Key, int]:
        """Numbers of what is alike; refined by successors until that tells nothing more apart."""
        numbers: dict[Hashable, int] = {}
        found: dict[Key, int] = {key: numbers.setdefault(self._kind(key, fineness), len(numbers)) for key in self.to}
        for _ in range(ROUNDS if fineness < 2 else 0):
            finer: dict[Hashable, int] = {}
            after = {
                key: finer.setdefault((found[key], frozenset(found[end] for end in ends)), len(finer))
                for key, ends in self.to.items()
            }
            if len(finer) == len(set(found.values())):
                break
            found = after
        return found

    def _kind(self, key: Key, fineness: int) -> Hashable:
        depth = self.depth[key]
        if isinstance(key, int):
            return ("rank", key in self.waits.missing, key in self.culprits, depth)
        blamed = bool(self.culprits.intersection(self.ranks(key)))
        if fineness == 3:
            return ("call", depth, blamed)
        op, seq, group = self._called(key)
        role = self.table.groups[group].role if fineness < 2 else ()
        return ("call", depth, blamed, op, seq if fineness == 0 else NEVER, role)

    def _called(self, call: Call, of: Sequence[int] = ()) -> tuple[str, int, int]:
        """Operation (as these ranks made it), transfers without their peers, number, group."""
        holders = self.ranks(call)
        unit = self.waits.held[next((rank for rank in holders if rank in of), holders[0])]
        text = called(self.table.rings[unit.rank], unit.at)
        if unit.seq == NEVER and (kind := text.partition(" ")[0]) in ("send", "recv"):
            text = kind if " and " not in text else "sends and receives"
        return (text, unit.seq, unit.group)

    def _node(self, keys: list[Key], place: dict[Key, int]) -> Node:
        ranks = tuple(sorted({rank for key in keys for rank in self.ranks(key)}))
        own = place[keys[0]]
        to = tuple(sorted({place[end] for key in keys for end in self.to[key]} - {own}))
        depth = min(self.depth[key] for key in keys)
        blamed = bool(self.culprits.intersection(ranks))
        first = next((rank for rank in ranks if rank in self.culprits), ranks[0]) if ranks else 0
        if isinstance(keys[0], int):
            missing = keys[0] in self.waits.missing
            role = "culprit" if blamed else "no_dump" if missing else "root"
            what = "no dump of it" if missing else "made no further call; nothing of its own is unfinished"
        else:
            role = "culprit" if blamed else "waiting" if depth or to else "root"
            what = self._waiting(keys, ranks)
        since, stack, stack_of = self._stands(first)
        return Node(role, ranks, self._title(ranks), what, to, depth, since, stack, stack_of)

    def _waiting(self, keys: Sequence[Key], of: Sequence[int]) -> str:
        calls = [key for key in keys if not isinstance(key, int)]
        around = any(end in keys for key in keys for end in self.to[key])
        ops = {self._called(call, of) for call in calls}
        group = min(number for _, _, number in ops)
        names = {name for name, _, _ in ops}
        seqs = sorted({number for _, number, _ in ops})
        groups = {number for _, _, number in ops}
        text = ", ".join(sorted(map(shown.text, names)))
        if seqs[0] != NEVER:
            text += f" #{seqs[0]}" + (f" to #{seqs[-1]}" if len(seqs) > 1 else "")
        title = shown.title(self.table.groups[group])
        alike = {self.table.groups[number].title for number in groups}
        if len(groups) == 1:
            text += f" in {title}"
        else:
            text += f" in {many(len(groups), 'group')}" + (f" named {title}" if len(alike) == 1 else "")
        standing = [self.waits.calls[call] for call in calls]
        if around:
            return f"{text}: they wait for each other"
        if not any(each.blockers or each.doubts for each in standing):
            return f"{text}: all members came, it does not end"
        if any(each.done for each in standing):
            return f"{text}: other members have finished it"
        return text

    def _title(self, ranks: tuple[int, ...]) -> str:
        host = self.hosts.get(ranks[0]) if len(ranks) == 1 else None
        return _title(ranks) + (f" on {printable(host)}" if host else "")

    def _stands(self, rank: int) -> tuple[str, tuple[str, ...], str]:
        """Since when, and where in the code, a rank stands in its oldest unfinished call; else its last call."""
        ring = self.table.rings.get(rank)
        if ring is None or not len(ring):
            return "", (), ""
        unit = self.waits.held.get(rank)
        at = unit.at if unit is not None else len(ring) - 1
        lines = tuple(shown.stack(ring.dump.sites[int(ring.dump.site[at])]))
        about = f"rank {rank}, {'called' if unit is not None else 'its last call:'} {shown.call(self.table, ring, at)}"
        return shown.when(int(ring.dump.created[at])), lines, about


def _depths(to: dict[Key, tuple[Key, ...]], roots: Sequence[Key]) -> dict[Key, int]:
    """Steps from the nearest root: what is given as such, and the ends of all waiting. A circle is at the root as a whole."""
    before: dict[Key, list[Key]] = {key: [] for key in to}
    for key, ends in to.items():
        for end in ends:
            before[end].append(key)
    todo: list[Key] = [key for key, ends in to.items() if not ends or key in roots]
    depth: dict[Key, int] = {}
    while len(depth) < len(to):
        if not todo:
            todo = _circle(to, depth)
        depth |= dict.fromkeys(todo, 0)
        while todo:
            reached = []
            for key in todo:
                for earlier in before[key]:
                    if earlier not in depth:
                        depth[earlier] = depth[key] + 1
                        reached.append(earlier)
            todo = reached
    return depth


def _circle(to: dict[Key, tuple[Key, ...]], known: dict[Key, int]) -> list[Key]:
    """One circle among what has no place yet: every node there leads on to another such."""
    key = next(key for key in to if key not in known)
    path: dict[Key, None] = {}
    while key not in path:
        path[key] = None
        key = next(end for end in to[key] if end not in known)
    walked = list(path)
    return walked[walked.index(key) :]


def _title(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    return f"{many(len(ranks), 'rank')}: {rank_ranges(ranks, 28).partition(' … (')[0]}" + (
        " …" if len(rank_ranges(ranks)) > 28 else ""
    )


def from_report(report: Report) -> list[Node]:
    """The same from the table of ranks, for evidence without dumps: who is blamed, and who waited for them."""
    verdict = report.verdicts[0] if report.verdicts else None
    if verdict is None or verdict.cause == "none":
        return []
    groups = rank_groups(report, per_state=4)
    culprits = verdict.culprit_ranks
    own = [group for group in groups if set(group.ranks) & set(culprits) or group.state == "culprit"]
    waiting = [group for group in groups if group.state in ("waiting", "ahead", "behind") and group not in own]
    root = _root(verdict, culprits, ", ".join(filter(None, (group.what for group in own[:1]))))
    if root is None or not waiting:
        return []
    rest = [
        Node("waiting", group.ranks, _title(group.ranks), printable(group.what) or group.state, (0,), 1)
        for group in waiting[:8]
    ]
    return [root, *rest]


def _root(verdict: Verdict, culprits: tuple[int, ...], what: str) -> Node | None:
    if culprits or verdict.culprits:
        name = named(verdict)
        title = f"Rank{'s' if len(culprits) > 1 else ''} {name}" if culprits else name
        return Node("culprit", culprits, title, what or verdict.mechanism.replace("_", " "), (), 0)
    place = operation(verdict.op, verdict.seq, verdict.group)
    if verdict.hosts or place:
        hosts = ", ".join(printable(host) for host in verdict.hosts[:4])
        return Node("root", (), hosts or place, place if hosts else "no rank can be named", (), 0)
    return None
