"""All faults, one module each."""

from lab.faults.fault import Fault
from lab.faults.kinds import (
    checkpoint_rank0,
    conditional,
    device_memory,
    exception,
    held_gil,
    host_memory,
    killed,
    link,
    loader_slow,
    loader_stuck,
    order,
    shape,
    stopped,
    storage_crawls,
    storage_hangs,
    timeout_short,
    tokenizing_rank0,
    uneven,
    world_incomplete,
    wrong_port,
)
from lab.faults.kinds.healthy import HEALTHY

FAULTS: tuple[Fault, ...] = (
    loader_slow.FAULT,
    loader_stuck.FAULT,
    storage_hangs.FAULT,
    storage_crawls.FAULT,
    checkpoint_rank0.FAULT,
    tokenizing_rank0.FAULT,
    held_gil.FAULT,
    stopped.FAULT,
    exception.FAULT,
    device_memory.FAULT,
    host_memory.FAULT,
    killed.FAULT,
    conditional.FAULT,
    uneven.FAULT,
    shape.FAULT,
    order.FAULT,
    link.SLOW,
    link.CUT,
    world_incomplete.FAULT,
    wrong_port.FAULT,
    timeout_short.FAULT,
    *HEALTHY,
)
BY_NAME = {fault.name: fault for fault in FAULTS}
