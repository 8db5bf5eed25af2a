"""Who talks with whom: the process groups of a tensor x pipeline x data (x expert) parallel job, and its hosts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

DESCRIPTIONS = {
    "world": "default_pg",
    "dp": "DATA_PARALLEL_GROUP_WITH_CP",
    "mp": "MODEL_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "spare": "POSITION_EMBEDDING_GROUP",
}
MESH = {"dp": "mesh_dp", "tp": "mesh_tp", "pp": "mesh_pp", "ep": "mesh_ep", "mp": "mesh_model", "spare": "mesh_cp"}


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: `index` counts creations over the job, the same on every rank."""

    index: int
    role: str
    ranks: tuple[int, ...]
    name: str
    description: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks run tensor first, then data, then pipeline: rank = (stage * dp + replica) * tp + shard."""

    tp: int
    pp: int
    dp: int
    ep: int
    node_size: int
    groups: tuple[Group, ...]
    _of: dict[tuple[str, int], Group] = field(repr=False)
    _local: dict[tuple[int, int], int] = field(repr=False)

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp

    def place(self, rank: int) -> tuple[int, int, int]:
        """(stage, replica, shard) of a rank."""
        return rank // (self.tp * self.dp), rank // self.tp % self.dp, rank % self.tp

    def rank_at(self, stage: int, replica: int, shard: int) -> int:
        return (stage * self.dp + replica) * self.tp + shard

    def group(self, role: str, rank: int) -> Group:
        """The group of that role which the rank is in; KeyError if there is none."""
        return self._of[role, rank]

    def local_id(self, group: Group, rank: int) -> int:
        """`pg_id` as recorded: the how-manieth NCCL group this *process* built, so it differs between ranks."""
        return self._local[group.index, rank]

    def host(self, rank: int) -> int:
        return rank // self.node_size

    def hosts(self) -> int:
        return -(-self.world // self.node_size)

    def siblings(self, group: Group) -> list[Group]:
        """Groups of the same role on the same pipeline stage: they run the same calls."""
        stage = self.place(group.ranks[0])[0]
        return [
            other
            for other in self.groups
            if other.role == group.role
            and other is not group
            and (group.role in ("pp", "mp") or self.place(other.ranks[0])[0] == stage)
        ]


def _members(tp: int, pp: int, dp: int, ep: int) -> list[tuple[str, list[int]]]:
    """Role and ranks of every group, in the order in which all ranks create them."""

    def at(stage: int, replica: int, shard: int) -> int:
        return (stage * dp + replica) * tp + shard

    made: list[tuple[str, list[int]]] = [("world", list(range(tp * pp * dp)))]
    for stage in range(pp):
        made += [("dp", [at(stage, replica, shard) for replica in range(dp)]) for shard in range(tp)]
    made += [("mp", [at(s, replica, t) for s in range(pp) for t in range(tp)]) for replica in range(dp)]
    for stage in range(pp):
        made += [("tp", [at(stage, replica, shard) for shard in range(tp)]) for replica in range(dp)]
    for replica in range(dp):
        made += [("pp", [at(stage, replica, shard) for stage in range(pp)]) for shard in range(tp)]
    for stage in range(pp):
        for first in range(0, dp, ep) if ep > 1 else ():
            made += [("ep", [at(stage, first + e, shard) for e in range(ep)]) for shard in range(tp)]
    made += [("spare", [at(0, replica, 0), at(pp - 1, replica, 0)]) for replica in range(dp) if pp > 1]
    return made


def build(
    tp: int,
    pp: int,
    dp: int,
    ep: int = 1,
    *,
    node_size: int = 8,
    naming: str = "counter",
    described: bool = True,
    timeouts_ms: tuple[int, int] = (600_000, 600_000),
) -> Layout:
    """Groups as `new_group` names them: a counter over all groups of the job, or ("hashed") a digest of the ranks.

    timeouts_ms: of the default group and of all others, which do not inherit it.
    """
    groups: list[Group] = []
    of: dict[tuple[str, int], Group] = {}
    local: dict[tuple[int, int], int] = {}
    built: dict[int, int] = {}
    for index, (role, ranks) in enumerate(_members(tp, pp, dp, ep)):
        name = str(index)
        if naming == "hashed" and index:
            joined = "_".join(map(str, [*ranks, min(index, len(groups))]))
            name = hashlib.sha1(joined.encode(), usedforsecurity=False).hexdigest()
        words = MESH if naming == "hashed" and index else DESCRIPTIONS
        description = words[role] if described or not index else "undefined"
        group = Group(index, role, tuple(ranks), name, description, timeouts_ms[min(index, 1)])
        groups.append(group)
        for rank in ranks:
            of[role, rank] = group
            local[index, rank] = built[rank] = built.get(rank, -1) + 1
    return Layout(tp, pp, dp, ep, node_size, tuple(groups), of, local)
