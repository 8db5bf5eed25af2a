"""How fast: streams over TCP between pairs of nodes, until the slow node or link is alone.

Up to `ALL` nodes every pair is measured, in rounds of pairs that share no node. Beyond, the distance between partners
halves from round to round, so that each node is measured with log2(n) others, near and far. A pair far below what
the others reach is measured again alone, in turn with a fast pair, since processors may have been busy; what stays slow is put on a node if all its pairs, in that direction, are slow,
else on the link. What one connection of Python's carries is a floor of what the network can, so only the comparison
counts, and `FLOOR`.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from whichrank.preflight import listeners
from whichrank.preflight.answer import Finding
from whichrank.preflight.roster import Roster

ALL = 8
SECONDS, AGAIN = 0.5, 0.8  # of one stream
SLOW = 0.4  # of the upper quartile of all pairs: the slow ones may be many
ONE_WAY = 0.25  # of the other direction, where there are two nodes and nothing else to compare with
CAP = 10.0  # Gb/s: faster streams are limited by processors, and say nothing of links
FLOOR = 0.5  # Gb/s: less holds up any training
MOST, MANY = 4, 16  # sides of nodes accused at once, and considered
CONFIRMED = 12  # slow pairs that are measured again: no more, for the sake of time
Speeds = Mapping[tuple[str, str], float]  # from, to -> Gb/s


def rounds(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Rounds of pairs that share no node.

    >>> rounds(["a", "b", "c", "d"])
    [[('a', 'd'), ('b', 'c')], [('a', 'c'), ('d', 'b')], [('a', 'b'), ('c', 'd')]]
    >>> [len(each) for each in rounds([str(n) for n in range(16)])]
    [8, 8, 8, 8]
    """
    return _circle(nodes) if len(nodes) <= ALL else _halving(nodes)


def _circle(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Every pair once: one stays, the others turn."""
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    made = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        made.append([(a, b) for a, b in zip(ring[:half], reversed(ring[half:]), strict=True) if a and b])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return made


def _halving(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    distance = 1 << (len(nodes) - 1).bit_length() - 1
    made = []
    while distance:
        made.append([(nodes[i], nodes[i + distance]) for i in range(len(nodes) - distance) if not i & distance])
        distance //= 2
    return made


def stream(address: str, port: int, rank: int, seconds: float) -> float:
    """Gb/s to a rank's listener. Raises OSError."""
    with listeners.connect(address, port, rank, 4) as connected:
        return listeners.streamed(connected, seconds) * 8 / 1e9


def suspects(speeds: Speeds, least: float = FLOOR, usual: float | None = None) -> list[tuple[str, str]]:
    """Directed pairs to be measured again, the slowest first. usual: Gb/s of a good pair, measured at the same time.

    >>> suspects({("a", "b"): 9.0, ("b", "a"): 9.2, ("a", "c"): 2.0, ("c", "a"): 9.1})
    [('a', 'c')]
    """
    if not speeds:
        return []
    if usual is None:
        usual = statistics.quantiles(speeds.values(), n=4)[2] if len(speeds) > 2 else max(speeds.values())
    bar = (SLOW if len(speeds) > 2 else ONE_WAY) * min(usual, CAP)
    slow = [pair for pair, speed in speeds.items() if speed < max(bar, least)]
    return sorted(slow, key=lambda pair: speeds[pair])[:CONFIRMED]


def judge(
    speeds: Speeds,
    roster: Roster,
    line: Mapping[str, int | None],
    least: float = FLOOR,
    usual: float | None = None,
) -> list[Finding]:
    """speeds: of pairs that were measured again the best. line: what each node's interface calls its own speed, Mb/s."""
    slow = set(suspects(speeds, least, usual))
    if not slow:
        return []
    good = [speed for pair, speed in speeds.items() if pair not in slow]
    usual = statistics.median(good) if good else None
    found = []
    for node, direction, pairs in _nodes(speeds, slow):
        slow -= pairs
        found.append(_node(node, direction, pairs, speeds, usual, roster, line))
    return [*found, *(_link(pair, slow, speeds, usual, least) for pair in sorted(slow) if not _told(pair, slow))]


def _nodes(speeds: Speeds, slow: Collection[tuple[str, str]]) -> Iterator[tuple[str, str, set[tuple[str, str]]]]:
    """Nodes all of whose pairs, out or in, are slow. Of several explanations the one that accuses fewest."""
    sides = []
    for node in dict.fromkeys(node for pair in speeds for node in pair):
        for side, direction in ((0, "out"), (1, "in")):
            pairs = frozenset(pair for pair in speeds if pair[side] == node)
            if len(pairs) > 1 and pairs <= set(slow):
                sides.append((node, direction, pairs))
    chosen = min(
        (some for count in range(min(len(sides), MOST) + 1) for some in combinations(sides[:MANY], count)),
        key=lambda some: (
            len({node for node, _, _ in some}) + len(set(slow).difference(*(pairs for _, _, pairs in some)))
        ),
    )
    for node in dict.fromkeys(node for node, _, _ in chosen):
        mine = [(direction, pairs) for name, direction, pairs in chosen if name == node]
        yield node, " and ".join(direction for direction, _ in mine), set().union(*(pairs for _, pairs in mine))


def _told(pair: tuple[str, str], slow: Collection[tuple[str, str]]) -> bool:
    """A link that is slow both ways is told once."""
    return (pair[1], pair[0]) in slow and pair > (pair[1], pair[0])


def _gbps(speed: float) -> str:
    return f"{speed:.1f}" if speed >= 1 else f"{speed:.2f}" if speed >= 0.1 else f"{speed:.3f}"


def _node(
    node: str, direction: str, pairs: Collection[tuple[str, str]], speeds: Speeds, usual: float | None, roster: Roster,
    line: Mapping[str, int | None],
) -> Finding:  # fmt: skip
    reached = statistics.median(speeds[pair] for pair in pairs)
    what = {"out": "sends", "in": "receives", "out and in": "sends and receives"}[direction]
    than = f"{_gbps(usual)} between the others" if usual else "no pair that is faster"
    called = f" Its interface calls itself {line[node] / 1000:g} Gb/s." if (line.get(node) or 0) > 0 else ""  # type: ignore[operator]
    return Finding(
        "bandwidth", "stop", "slow_node", f"{node} {what} at {_gbps(reached)} Gb/s with every partner, against {than}.{called}",
        f"leave {node} out, or look at its link: ethtool IFACE (speed, errors), ethtool -S IFACE twice, tc qdisc show dev "
        "IFACE, cable and switch port", (node,), tuple(roster.ranks_of(node)),
    )  # fmt: skip


def _link(
    pair: tuple[str, str], slow: Collection[tuple[str, str]], speeds: Speeds, usual: float | None, least: float
) -> Finding:
    a, b = pair
    back = speeds.get((b, a))
    both = (b, a) in slow
    speed = _gbps(speeds[pair]) + (f" and {_gbps(back or 0.0)} back" if both else "")
    if len(speeds) <= 2:
        than = (
            f"less than the {least:g} Gb/s that any training needs"
            if both or back is None
            else f"{_gbps(back)} the other way"
        )
        return Finding(
            "bandwidth", "stop", "slow_link", f"{a} to {b}: {speed} Gb/s, {than}. With two nodes it cannot be told which end is slow.",
            f"measure each with a third node, or look at both: ethtool IFACE, tc qdisc show dev IFACE on {a} and {b}", (a, b),
        )  # fmt: skip
    return Finding(
        "bandwidth", "stop", "slow_link", f"{a} to {b}: {speed} Gb/s, against {_gbps(usual or 0.0)} between the others; both are fast with other nodes.",
        f"look at the path between {a} and {b}: switch uplinks, routes (ip route get), cables", (a, b),
    )  # fmt: skip


def table(pairs: list[dict[str, Any]], speeds: Speeds) -> None:
    """Puts the speeds into the rows of pairs."""
    for row in pairs:
        speed = speeds.get((row["from"], row["to"]))
        row["gbps"] = None if speed is None else round(speed, 3)
