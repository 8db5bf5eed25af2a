"""What goes wrong: each fault changes the programs, or cuts the network, and says what it did.

The mechanism is in the words of the report: host_stuck, gpu_hang, dead, desync, mismatch, deadlock, network,
timeout_short, no_hang.
"""

from __future__ import annotations

from collections.abc import Callable

from lab.simulate import calls, others, stops
from lab.simulate.scene import Fault, Scene

KINDS: dict[str, Callable[[Scene], Fault]] = {
    made.__name__: made
    for made in (
        stops.host_stuck,
        stops.late_then_stuck,
        stops.gpu_hang,
        stops.dead,
        stops.two_culprits,
        calls.skipped_collective,
        calls.extra_collective,
        calls.size_mismatch,
        calls.dtype_mismatch,
        calls.op_mismatch,
        calls.order_inversion,
        calls.uneven_data,
        others.network,
        calls.missing_send,
        calls.missing_recv,
        calls.split_mismatch,
        stops.rank0_checkpoint,
        others.timeout_short,
        others.healthy,
        others.straggler,
    )
}
