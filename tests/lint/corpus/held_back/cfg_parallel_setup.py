"""Process groups for guidance-parallel and sequence-parallel inference."""

import torch.distributed as dist

CFG_GROUP = None
SP_GROUP = None


def blocks_of(ranks, size):
    return [ranks[i : i + size] for i in range(0, len(ranks), size)]


def setup_groups(cfg_degree, sp_degree):
    global CFG_GROUP, SP_GROUP
    rank = dist.get_rank()
    world = list(range(dist.get_world_size()))
    for ranks in blocks_of(world, cfg_degree):
        if rank in ranks:
            CFG_GROUP = dist.new_group(ranks)
    for ranks in blocks_of(world, sp_degree):
        if rank in ranks:
            SP_GROUP = dist.new_group(ranks)


def guided(noise_pair):
    dist.all_reduce(noise_pair, group=CFG_GROUP)
    return noise_pair
