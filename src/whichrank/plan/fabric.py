"""How many switches and cables join a cluster's GPUs, by topology. Rail-optimised, one network card per GPU.

full fat tree  leaf = 8 ceil(ceil(G/(R/2)) / 8); up to R^2/2 GPUs spine = ceil(leaf/2) and no core, beyond that
               spine = leaf and core = ceil(spine/2). G cables per tier (DGX SuperPOD reference architecture, B200).
               With two tiers a leaf's R/2 uplinks spread evenly, so that spine is rounded up to a divisor of R/2: 18
               for 32 leaves of 144 ports, 36 for 64 (DGX SuperPOD reference architecture, B300 XDR).
rail-only      one switch per rail, as far as its ports reach: no traffic between rails but through NVLink.
dual-plane     every card split into two ports of half speed, each in a fat tree of its own whose switches have twice
               the ports: more reach with two tiers.
rails          the cost sheet's own: each rail a fat tree of two tiers, 64 leaves and 32 spines at 2,048 nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.errors import UsageProblem

TOPOLOGIES = ("fat-tree", "rail-only", "dual-plane", "rails")


@dataclass(frozen=True, slots=True)
class Fabric:
    """Counts. `cables` per tier, from the GPUs upwards; a cable has two transceiver ends."""

    topology: str
    leaf: int
    spine: int
    core: int
    cables: tuple[int, ...]

    @property
    def switches(self) -> int:
        return self.leaf + self.spine + self.core

    @property
    def tiers(self) -> int:
        return len(self.cables)

    @property
    def transceivers(self) -> int:
        return 2 * sum(self.cables)


def build(topology: str, gpus: int, rails: int, radix: int) -> Fabric:
    """The fabric for `gpus` cards in nodes of `rails`, of switches with `radix` ports.

    Raises:
        UsageProblem: more GPUs than the topology reaches.
    """
    if topology == "fat-tree":
        return _fat_tree(topology, gpus, rails, radix)
    if topology == "rail-only":
        nodes = -(-gpus // rails)
        if nodes > radix:
            raise UsageProblem(
                f"rail-only: one switch of {radix} ports per rail joins {radix} nodes, not {nodes}; take fat-tree or rails"
            )
        return Fabric(topology, rails, 0, 0, (gpus,))
    if topology == "dual-plane":
        plane = _fat_tree(topology, gpus, rails, 2 * radix)
        return Fabric(
            topology, 2 * plane.leaf, 2 * plane.spine, 2 * plane.core, tuple(2 * each for each in plane.cables)
        )
    if topology == "rails":
        return _rails(gpus, rails, radix)
    raise UsageProblem(f"no topology {topology!r}: {', '.join(TOPOLOGIES)}")


def _fat_tree(topology: str, gpus: int, rails: int, radix: int) -> Fabric:
    down = radix // 2
    if gpus > radix**3 // 4:
        raise UsageProblem(f"three tiers of {radix}-port switches join {radix**3 // 4:,} GPUs, not {gpus:,}")
    needed = -(-gpus // down)
    leaf = rails * -(-needed // rails)
    if gpus <= radix**2 // 2:
        spine = next(each for each in range(-(-leaf // 2), radix + 1) if down % each == 0 or each >= down)
        return Fabric(topology, leaf, spine, 0, (gpus, gpus))
    return Fabric(topology, leaf, leaf, -(-leaf // 2), (gpus, gpus, gpus))


def _rails(gpus: int, rails: int, radix: int) -> Fabric:
    """A two-tier tree for each rail by itself; one tier where the rail fits into a switch."""
    nodes = -(-gpus // rails)
    if nodes <= radix:
        return Fabric("rails", rails, 0, 0, (gpus,))
    leaf = -(-nodes // (radix // 2))
    if leaf > radix:
        raise UsageProblem(f"rails: a rail of two tiers joins {radix**2 // 2:,} nodes, not {nodes:,}")
    return Fabric("rails", rails * leaf, rails * -(-leaf // 2), 0, (gpus, gpus))
