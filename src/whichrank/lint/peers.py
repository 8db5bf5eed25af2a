"""send and recv: each has its counterpart, and no two ranks wait for each other's recv in their send."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from whichrank.lint.diverge import Parting
from whichrank.lint.source import Source
from whichrank.lint.trace import Branch, Loop, Peer, Place, Trace, walk

SENDS, RECEIVES = frozenset({"send", "isend"}), frozenset({"recv", "irecv"})


def partings(source: Source, traces: Sequence[Trace]) -> Iterator[Parting]:
    """traces: one for each rank of a world of that size."""
    ranks = [[step for step in walk(trace) if isinstance(step, Peer)] for trace in traces]
    every = [peer for rank in ranks for peer in rank]
    if any(peer.peer is not None and not 0 <= peer.peer < len(ranks) for peer in every):
        return  # written for another number of ranks
    missing = list(_missing(source, ranks))
    yield from missing
    if not missing and all(peer.peer is not None for peer in every) and not any(map(_branches, traces)):
        yield from _blocked(ranks)


def _missing(source: Source, ranks: list[list[Peer]]) -> Iterator[Parting]:
    """A peer whose rank never answers, unless another function of the file may."""
    seen = {peer.place for rank in ranks for peer in rank}
    for sends in (False, True):
        if _elsewhere(source, seen, SENDS if not sends else RECEIVES):
            continue
        for rank, peers in enumerate(ranks):
            for peer in peers:
                if peer.sends is not sends or peer.peer is None:
                    continue
                answers = [each for each in ranks[peer.peer] if each.sends is not sends]
                if not any(each.peer in (rank, None) and _same_tag(each, peer) for each in answers):
                    what = "send" if sends else "recv"
                    yield Parting(
                        "p2p-unpaired",
                        peer.place,
                        what,
                        f"rank {peer.peer} never {'receives from' if sends else 'sends to'} rank {rank}",
                    )


def _same_tag(one: Peer, other: Peer) -> bool:
    return one.tag is None or other.tag is None or one.tag == other.tag


def _elsewhere(source: Source, seen: set[Place], names: frozenset[str]) -> bool:
    operations = {
        id(node.args[0])
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and node.args and source.dotted(node.func).endswith("P2POp")
    }
    for node in ast.walk(source.tree):
        name = ""
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
        if name in names and id(node) not in operations and (node.lineno, node.col_offset + 1) not in seen:  # type: ignore[attr-defined]
            return True
    return False


def _branches(trace: Trace) -> bool:
    return any(
        isinstance(step, Branch | Loop) and any(isinstance(each, Peer) for each in walk((step,))) for step in trace
    )


def _blocked(ranks: list[list[Peer]]) -> Iterator[Parting]:
    """Runs all ranks as far as they come, where a send ends when its recv has begun."""
    at = [0] * len(ranks)
    posted: list[tuple[int, Peer]] = []
    moved = True
    while moved:
        moved = False
        for rank, peers in enumerate(ranks):
            while at[rank] < len(peers):
                peer = peers[at[rank]]
                if not peer.blocks:
                    posted.append((rank, peer))
                elif not _meets(ranks, at, posted, rank, peer):
                    break
                at[rank] += 1
                moved = True
    stuck = [(rank, peers[at[rank]]) for rank, peers in enumerate(ranks) if at[rank] < len(peers)]
    if stuck:
        rank, peer = next(((rank, peer) for rank, peer in stuck if peer.sends), stuck[0])
        why = f"rank {rank} waits in it for rank {peer.peer}, which waits in one of its own"
        yield Parting("p2p-unpaired", peer.place, "send" if peer.sends else "recv", why)


def _meets(ranks: list[list[Peer]], at: list[int], posted: list[tuple[int, Peer]], rank: int, peer: Peer) -> bool:
    assert peer.peer is not None
    for entry in posted:
        if entry[0] == peer.peer and entry[1].peer == rank and entry[1].sends is not peer.sends:
            posted.remove(entry)
            return True
    other = ranks[peer.peer]
    if at[peer.peer] < len(other):
        facing = other[at[peer.peer]]
        if facing.blocks and facing.peer == rank and facing.sends is not peer.sends:
            at[peer.peer] += 1
            return True
    return False
