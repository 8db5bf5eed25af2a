"""What training, NCCL and launchers print, in plain words: kind of fact -> meaning, guilt, what to look at next.

The kinds are those of docs/facts.md; the other half, what hosts and schedulers print, is in explain_hosts.py.
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """`guilt` says whether the speaker is to blame; `then` what to look at next."""

    means: str
    guilt: str
    then: str = ""


NAMES = "names who held the others up"
DIED = "its own failure: a culprit, unless something failed before it"
MACHINE = "the machine or what runs it, not the training code"
SUSPECT = "a suspect, not yet a culprit"
WAITED = "a victim: it waited for others"
CASCADE = "a consequence: something else failed before it"
CONTEXT = "nobody: background that helps to read the rest"
WEIGHT = {guilt: place for place, guilt in enumerate((NAMES, DIED, MACHINE, SUSPECT, WAITED, CASCADE, CONTEXT))}

# An exception of the kind that findings/failures.py takes for no root.
ECHO = Message(
    "A Python error of the kind that follows from another failure: a peer that went away, a wait that ran out, a "
    "launcher that ended the rest.",
    CASCADE,
    "Find the earliest error of another kind, on any rank; where there is none, the rank that says nothing at all.",
)
COLLECTIVES = {
    "timeout": Message(
        "This rank entered a collective and waited until the timeout. It tells which operation did not finish "
        "(its number counts within one process group only), how much data it had and how long it waited.",
        WAITED,
        "Look for the rank of the same group that did NOT print this line, or printed a lower number: "
        "`grep -L 'Watchdog caught' rank*.log`. More time helps only if that rank was slow, not stuck or gone.",
    ),
    "pg_status": Message(
        "The queue of this process group when its watchdog fired: last enqueued minus last completed is how many "
        "collectives were under way.",
        WAITED,
        "Compare the ranks: the lowest `enqueued` is behind; a rank with enqueued equal to completed was idle, "
        "that is, busy in host code.",
    ),
    "dump": Message(
        "The dump of this rank's Flight Recorder: the last calls that it made, with their groups, shapes and call sites. "
        "It says nothing of the other ranks: what counts is where they differ.",
        CONTEXT,
        "Give whichrank the dumps of all ranks together; who left none is part of the answer.",
    ),
    "dump_entry": Message(
        "One call in a Flight Recorder dump: operation, number within its group, shapes, state, the line that made it. "
        "`scheduled` says that it was called, not that it runs.",
        CONTEXT,
        "Compare the call of the same number and group on the other ranks.",
    ),
    "dump_wait": Message(
        "By its Flight Recorder dump this rank made this call and it has not ended: it waits there.",
        WAITED,
        "Look for the members of the group that did not make this call, or are in an older one.",
    ),
    "group_member": Message(
        "This rank is a member of that process group: a collective of the group waits for all its members, and only "
        "for them.",
        CONTEXT,
    ),
    "wrapper_error": Message(
        "With TORCH_DISTRIBUTED_DEBUG=DETAIL a barrier runs before every collective; it failed here. The operation that "
        "is named is the one this rank was about to start.",
        WAITED,
        "Compare the operation and its number over the ranks: who was about to start something else parted from them.",
    ),
    "dump_signal": Message(
        "Another rank timed out first and asked this one to dump its state. Who fired first is not the culprit: it "
        "only had the longest wait.",
        CONTEXT,
        "If last enqueued equals last completed here, this rank had no collective under way: it was in host code "
        "(data, saving, evaluation) and is the prime suspect. Get its stack.",
    ),
    "watchdog_stuck": Message(
        "The heartbeat monitor saw no progress of the watchdog thread itself. That is no collective timeout: a CUDA "
        "call does not return, or the GIL is held.",
        SUSPECT,
        "`py-spy dump --native --nonblocking --pid PID` of this rank; dmesg of its host for Xid lines.",
    ),
    "gil_stuck": Message(
        "The Python interpreter lock could not be had: some thread of this process holds it without running Python.",
        SUSPECT,
        "`py-spy dump --native --pid PID`: which thread is `active+gil`, and in which C extension?",
    ),
    "desync": Message(
        "PyTorch's desync report compared all ranks and names those that never joined the collective.",
        NAMES,
        "Get the log and the stack of the ranks named; the report says who, not why.",
    ),
    "desync_state": Message(
        "One rank's latest collective in the desync report.",
        CONTEXT,
        "Lower numbers are behind, higher ones ahead; being ahead is no fault.",
    ),
    "fingerprint": Message(
        "Two ranks called different collectives, or the same one with other shapes or types, at the same place in "
        "their order (TORCH_DISTRIBUTED_DEBUG=DETAIL).",
        NAMES,
        "Take all lines of this kind together: the rank in the minority is the one that differs. Then compare the "
        "call sites: a branch that not all ranks take, or batches of different size.",
    ),
    "size_mismatch": Message(
        "A peer sent this rank, over gloo, more bytes than it had room for: the two made the same call with other sizes, "
        "or two different calls. The process ends with SIGABRT.",
        SUSPECT,
        "Which of the two differs from the rest? Compare both numbers with the sizes in the other ranks' Flight Recorder "
        "dumps, or in their output. A part of a tensor may be what was sent.",
    ),
    "barrier_missing": Message(
        "Rank 0's monitored barrier names the ranks that did not reach it in time.",
        NAMES,
        "Get the log and the stack of the ranks named.",
    ),
    "barrier_innocent": Message(
        "This rank reached the monitored barrier and failed only because rank 0 did.",
        WAITED,
        "Read rank 0's log: it names the missing ranks.",
    ),
    "failed_collective_site": Message(
        "The Python stack from which the failed collective was issued on this rank.",
        CONTEXT,
        "Compare it between ranks: the same number at different lines is a desync.",
    ),
    "generic_abort": Message(
        "PyTorch ends the process because a collective failed; the text is the same whatever the reason.",
        CASCADE,
        "Read the lines before it.",
    ),
    "remote_error": Message(
        "Another rank reported an error and this one stops with it.",
        CASCADE,
        "Go to the rank it names; look for its first error.",
    ),
}

NCCL = {
    "init_start": Message(
        "NCCL began to set up a communicator here. The line ties host, process and GPU to the rank within it.",
        CONTEXT,
        "Every START needs a COMPLETE: ranks without one are stuck in setting up, ranks without START never came.",
    ),
    "init_complete": Message("NCCL finished setting up a communicator on this rank.", CONTEXT),
    "abort": Message("A communicator was aborted, usually because the job was already failing.", CASCADE),
    "destroy": Message("A communicator was destroyed in order: this rank was shutting down.", CONTEXT),
    "bootstrap_using": Message(
        "The network interface over which NCCL's ranks find each other.",
        CONTEXT,
        "It must be the same network on all nodes; docker0 or lo here is a wrong NCCL_SOCKET_IFNAME.",
    ),
    "net_using": Message(
        "The transport that carries the data between nodes.",
        CONTEXT,
        "Socket on a cluster with InfiniBand or RoCE means that NCCL did not find or load it: slow, or a mismatch "
        "with nodes that did.",
    ),
    "net_plugin": Message(
        "Which network plugin NCCL loaded.", CONTEXT, "All nodes must load the same: compare the line between them."
    ),
    "nccl_version": Message("The NCCL version of this process.", CONTEXT, "It must be the same on all ranks."),
    "ib_error": Message(
        "An InfiniBand or RoCE operation failed. Status 12: no answer after all retries, a dead link or a dead peer; "
        "13: the receiver was not ready; 5: flushed, a consequence; 4: memory protection (ACS, GPU direct).",
        SUSPECT,
        "Look whether the peer's process died first. If it lived: link counters and kernel log on both ends.",
    ),
    "ib_async": Message(
        "The network adapter reported an event by itself: a port went down or failed.",
        MACHINE,
        "Kernel log and `ibstat` of this host; `link_downed` before and after.",
    ),
    "ib_call_failed": Message(
        "A verbs call failed while connecting. 110: the peer's port cannot be reached; 22: usually a wrong "
        "NCCL_IB_GID_INDEX.",
        SUSPECT,
        "`ibv_devinfo` and `show_gids` on both hosts.",
    ),
    "peer_closed": Message(
        "The connection to another rank was closed from its side: that process ended or was killed.",
        CASCADE,
        "Find the first death: exit codes, kernel log and last line of the peer at the address it names.",
    ),
    "connect_failed": Message(
        "A connection to another rank could not be made: wrong interface, firewall, or the peer is not (or no "
        "longer) there.",
        SUSPECT,
        "Did the peer's process live at that time? If yes: `ip -br addr` on both hosts, and try the port.",
    ),
    "connect_retry": Message("A connection is tried again.", CONTEXT, "Give-up comes after about a minute."),
    "no_interface": Message(
        "NCCL or gloo found no usable network interface of the name it was told.",
        DIED,
        "`ip -br link` on this host and the values of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME.",
    ),
    "no_ib_device": Message(
        "NCCL found no InfiniBand or RoCE device here and goes over sockets.",
        SUSPECT,
        "`ibv_devices` in the container: are /dev/infiniband and the driver's libraries there, as on the other nodes?",
    ),
    "env_set": Message("A setting as this process has it.", CONTEXT, "It must be the same on all ranks."),
    "shm_error": Message(
        "Shared memory between the processes of a node could not be made: /dev/shm is full or too small.",
        DIED,
        "`df -h /dev/shm` in the container; start it with --ipc=host or a larger --shm-size.",
    ),
    "nccl_mismatch": Message(
        "Two ranks run different versions of NCCL or its plugin, or tell different things about the job.",
        DIED,
        "Compare the images and `python -c 'import torch; print(torch.cuda.nccl.version())'` on both.",
    ),
    "duplicate_gpu": Message(
        "Two ranks use the same GPU: the device is not chosen by local rank.",
        DIED,
        "`torch.cuda.set_device(local_rank)` before anything touches the GPU; look at CUDA_VISIBLE_DEVICES.",
    ),
    "duplicate_rank": Message(
        "A rank checked in twice: started twice, or two jobs share an address and port.",
        DIED,
        "Look for a second launcher, or a job left over, on the master's port.",
    ),
    "nccl_operations": Message(
        "What this process enqueued on a communicator, last of all (NCCL_DEBUG_SUBSYS=COLL). opCount is hexadecimal and "
        "counts launches.",
        CONTEXT,
        "Lay the lists of all ranks side by side: the first place where they differ is where they parted. Fewer "
        "operations than the others: behind; more: it ran ahead, which is no fault.",
    ),
    "nccl_inspector": Message(
        "What NCCL Inspector saw completed on this process. A collective takes long on ranks that wait and is short on "
        "the one that comes last.",
        CONTEXT,
        "Compare coll_exec_time_us of the same coll_sn over the ranks: the shortest is the late rank.",
    ),
    "nccl_error": Message(
        "NCCL returned an error. Its `Last error:` line, if there is one, says more than the word itself.",
        SUSPECT,
        "`remote process exited or there was a network error` marks a victim; for the others run with NCCL_DEBUG=WARN.",
    ),
    "speed_change": Message(
        "A network port changed its speed: the link renegotiated, usually to a lower rate.",
        MACHINE,
        "Cable and optics of that port; everything over it is slower from here on.",
    ),
    "p2p_info": Message(
        "How GPUs of one node reach each other (peer access, PCIe ACS, IOMMU, GPU direct).",
        CONTEXT,
        "Hangs at the first collective on one node: try NCCL_P2P_DISABLE=1 once, to tell.",
    ),
}

PROCESSES = {
    "exception": Message(
        "A Python error ended this process (or, if it was caught, was only logged).",
        DIED,
        "Compare the times: the earliest uncaught error of all ranks is the root; later ones follow from it.",
    ),
    "cuda_oom": Message(
        "This rank's GPU had no memory left for an allocation.",
        DIED,
        "If only this rank ran out: uneven batches or a second process on that GPU (`nvidia-smi`). Otherwise smaller "
        "batches, checkpointing or sharding.",
    ),
    "cuda_error": Message(
        "A CUDA call failed on this rank. ECC, NVLink and `fallen off the bus` are hardware; an illegal address or "
        "a failed assertion is code; many others only report an earlier one late.",
        SUSPECT,
        "Kernel log of its host for an Xid line at that time; without one run again with CUDA_LAUNCH_BLOCKING=1.",
    ),
    "exit": Message(
        "A process ended and its launcher says how. torchrun's `Root Cause (first observed failure)` is only the "
        "first that it noticed: often a victim that was aborted.",
        SUSPECT,
        "Believe it for the first exception and for -9; for -6 and -15 look for an earlier failure.",
    ),
    "success": Message("The job or a rank of it ended well.", CONTEXT),
    "launcher_stop": Message("The launcher ends the other ranks after one failed.", CASCADE, "Find the first failure."),
    "launcher_kill": Message(
        "A rank did not end when asked and the launcher killed it: it was probably stuck, as the collective was.",
        CASCADE,
        "Find what came before the launcher's first closing signal.",
    ),
    "restart": Message("The launcher starts the ranks again.", CONTEXT, "Read the attempt that failed first."),
    "rendezvous_complete": Message("The launchers of all nodes found each other and agreed on ranks.", CONTEXT),
    "store_timeout": Message(
        "Not all processes joined in time: `x/y clients joined` says how many came.",
        WAITED,
        "Find the node or rank that never started: scheduler output, its own log, image pull, wrong MASTER_ADDR.",
    ),
    "store_connected": Message("This process reached the store.", CONTEXT),
    "compile": Message(
        "The compiler (torch.compile) at work on this rank; other ranks wait for it in their next collective.",
        SUSPECT,
        "Does it compile when others do not? TORCH_LOGS=recompiles says why.",
    ),
    "unused_parameters": Message(
        "DDP names the parameters that got no gradient on this rank. If other ranks used them, this one took another "
        "branch.",
        SUSPECT,
        "Compare the ranks: the same list everywhere needs find_unused_parameters=True, different lists a look at the "
        "branch.",
    ),
    "store_lost": Message(
        "The store on rank 0's host no longer answers: that process ended or its host went away.",
        CASCADE,
        "How and when did rank 0 end?",
    ),
    "gai_warning": Message(
        "A host name could not be looked up, or only at a second try.", CONTEXT, "DNS of that host."
    ),
    "store_barrier": Message(
        "Ranks wait in the store until all have come.",
        WAITED,
        "worker_count below world_size: somebody is missing. Above it: a second job on the same store.",
    ),
    "connect_timeout": Message(
        "This process could not reach the address it was told to meet the others at.",
        WAITED,
        "From this host: does the name resolve, to an address of the right network? Is rank 0 up? Is the port open?",
    ),
    "rendezvous_error": Message(
        "The meeting of the launchers failed.",
        WAITED,
        "A node is missing, or its number of nodes, id or endpoint differs: compare the launch lines.",
    ),
    "addr_in_use": Message(
        "The port is taken, usually by an earlier job's process that still lives.",
        DIED,
        "`ss -ltnp` on that host; another --master-port.",
    ),
    "dl_worker_killed": Message(
        "A DataLoader worker process of this rank was ended from outside; the rank cannot go on without it.",
        DIED,
        "`Killed` is signal 9, usually the kernel for memory: dmesg of this host, for that pid. Bus error: /dev/shm.",
    ),
    "dl_timeout": Message(
        "A DataLoader worker gave no batch within DataLoader(timeout=…).",
        DIED,
        "Stack of the worker: storage, a slow sample, or a deadlock after fork.",
    ),
    "dl_bus_error": Message(
        "A DataLoader worker hit the end of shared memory.",
        DIED,
        "`df -h /dev/shm` in the container; start it with --ipc=host or a larger --shm-size.",
    ),
    "signal_received": Message(
        "A process says that it was sent a signal.",
        CASCADE,
        "Who sent it? SIGTERM: the launcher, scheduler or kubelet; look for preemption, limits or an earlier failure.",
    ),
    "segfault": Message(
        "A process crashed in native code.",
        DIED,
        "The library in which it crashed; a core dump or `PYTHONFAULTHANDLER=1` shows the stack.",
    ),
    "member": Message("A line that ties a rank to its host, process or GPU.", CONTEXT),
    "config": Message("A setting that the program printed.", CONTEXT),
    "restored": Message("The run went on from a checkpoint.", CONTEXT),
    "checkpoint_saving": Message(
        "A checkpoint was begun. If no line says that it was done, the rank may still be in it.",
        SUSPECT,
        "`py-spy dump --pid PID` of the rank that saves; how fast its files grow.",
    ),
    "checkpoint_saved": Message("A checkpoint was written to its end: a safe point to resume from.", CONTEXT),
    "collector_drop": Message(
        "The log collector dropped or cut records: a missing line proves nothing here.",
        CONTEXT,
        "Get the log from the node itself.",
    ),
    "folded": Message(
        "Ray folded equal lines of several processes into one: other ranks said this too.",
        CONTEXT,
        "RAY_DEDUP_LOGS=0 prints each one.",
    ),
    "straggler_hint": Message(
        "The framework's straggler detector names ranks that computed slowly. Slow is not stuck.",
        SUSPECT,
        "Do the named ranks share a host? Clocks and temperature there: `nvidia-smi -q -d PERFORMANCE,CLOCK`.",
    ),
    "rank_score": Message(
        "How fast this rank's GPU computed, 1 being the best: below about 0.75 it is a straggler.",
        CONTEXT,
        "Compare its last scores with the others': one low score is chance.",
    ),
    "rank_extremes": Message(
        "The fastest and the slowest rank of one timer. Where no rank is named, turn on the one for all ranks "
        "(Megatron: --timing-log-option all).",
        SUSPECT,
        "A wide spread of batch-generator is data, of save-checkpoint storage, of forward-compute a slow GPU or uneven work.",
    ),
    "heartbeat_missed": Message(
        "The rank's monitor had no sign of life and ends the rank. In a hang all ranks fall silent, most of them as victims.",
        WAITED,
        "Which rank was in another section than the others, or fell silent first?",
    ),
    "health_failed": Message(
        "A health check found a GPU or a network card in trouble.",
        MACHINE,
        "Kernel log of that host for Xid and link lines; take the node out.",
    ),
    "result_check": Message(
        "Megatron ran a step again to see whether a result repeats: transient is chance, persistent is that GPU, correct is the code.",
        SUSPECT,
        "Persistent: run the GPU's diagnostics (`dcgmi diag -r 3`) and take it out.",
    ),
    "engine_waits": Message(
        "The serving engine waits for its workers: one of them hangs, or compiles, or loads. The line names none.",
        WAITED,
        "Stacks of all workers: `py-spy dump --pid PID`; which stands outside a collective?",
    ),
    "engine_death": Message(
        "The serving engine lost a process. It also says so at an orderly shutdown.",
        CASCADE,
        "Find that process's own last words, above this line.",
    ),
}
