"""A job under torchrun whose ranks write their own dumps: FOLDER STALLED. The stalled rank leaves out the last call.

Run by test_simulate_gloo.py, where torch is installed.
"""

import os
import sys
import time
from pathlib import Path


def main(folder: Path, stalled: int) -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "200"
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    x = torch.ones(8, 16)
    dist.barrier()
    dist.broadcast(x, 0)
    for _ in range(3):
        dist.all_reduce(x, group=pairs[rank // 2])
        dist.all_gather_into_tensor(torch.empty(8 * n, 16), x)
        dist.reduce_scatter_tensor(torch.empty(8 // n, 16), x)
        if rank < 2:
            (dist.send if rank == 0 else dist.recv)(x, 1 - rank)
        dist.all_to_all_single(torch.empty(8, 16), x)
        dist.gather(x, [torch.empty(8, 16) for _ in range(n)] if rank == 0 else None, dst=0)
    dist.barrier()
    last = None if rank == stalled else dist.all_reduce(x, async_op=True)
    time.sleep(1.0)
    assert last is None or not last.is_completed()
    c10d = torch._C._distributed_c10d
    (folder / f"real_{rank}").write_bytes(c10d._dump_fr_trace(True, True, False))
    (folder / f"real_{rank}.json").write_bytes(c10d._dump_fr_trace_json(True, False))
    os._exit(0)  # an open call must not keep the others


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
