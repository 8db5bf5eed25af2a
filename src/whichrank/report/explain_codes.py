"""Numbers and words that say little by themselves: signals, exit codes, Xid, NCCL results, scheduler states."""

from __future__ import annotations

from whichrank.report.explain_messages import CASCADE, CONTEXT, DIED, MACHINE, NAMES, SUSPECT, WAITED, Message

SIGNALS: dict[int, tuple[str, Message]] = {
    1: (
        "SIGHUP",
        Message(
            "The terminal or session that started it went away.",
            CASCADE,
            "Start it with nohup, tmux or as a batch job.",
        ),
    ),
    2: ("SIGINT", Message("Somebody pressed Ctrl-C, or a launcher passed it on.", CASCADE)),
    4: ("SIGILL", Message("An instruction that this CPU does not have.", DIED, "A binary built for another CPU.")),
    6: (
        "SIGABRT",
        Message(
            "The process ended itself: PyTorch's watchdog after a timeout, a failed C++ assertion, or std::terminate.",
            CASCADE,
            "Read the line before it. After a watchdog timeout this rank is a victim.",
        ),
    ),
    7: (
        "SIGBUS",
        Message(
            "A mapped file or shared memory ended under it: /dev/shm full, or a file on a mount cut short.",
            DIED,
            "`df -h /dev/shm`; in a container --ipc=host or a larger --shm-size.",
        ),
    ),
    8: ("SIGFPE", Message("Integer division by zero in native code.", DIED)),
    9: (
        "SIGKILL",
        Message(
            "Killed from outside; the process could not say a word. By the kernel for memory, the kubelet, Slurm, a "
            "launcher after its grace time, or a person: the signal alone does not tell which.",
            SUSPECT,
            "`dmesg -T | grep -i 'killed process'` on its host for that pid; the scheduler's accounting.",
        ),
    ),
    10: ("SIGUSR1", Message("A warning that many schedulers send some minutes before they end a job.", CONTEXT)),
    11: (
        "SIGSEGV",
        Message(
            "A crash in native code.", DIED, "PYTHONFAULTHANDLER=1 or a core dump shows where; dmesg names the library."
        ),
    ),
    12: ("SIGUSR2", Message("A signal for the program's own use; some schedulers warn with it.", CONTEXT)),
    13: ("SIGPIPE", Message("It wrote to a pipe that nobody reads any more.", CASCADE)),
    15: (
        "SIGTERM",
        Message(
            "Asked to end: by torchrun after another rank failed, by the scheduler (preemption, limit) or the kubelet.",
            CASCADE,
            "Look for what came before: the first failed rank, or a notice of preemption.",
        ),
    ),
    19: (
        "SIGSTOP",
        Message(
            "Stopped, not ended: by a person, a debugger or a scheduler that suspends.",
            SUSPECT,
            "State T in ps; `kill -CONT` continues it.",
        ),
    ),
    24: ("SIGXCPU", Message("It used up its limit of CPU time.", MACHINE, "ulimit -t, or the queue's limit.")),
}

EXITS: dict[int, Message] = {
    0: Message("Ended well.", CONTEXT),
    1: Message("Ended with an error, in Python usually an uncaught exception.", SUSPECT, "Its traceback, above."),
    2: Message("Wrong arguments, usually.", DIED, "The usage message above it."),
    126: Message("The command was found but could not be run.", DIED, "Permissions; a script without #! line."),
    127: Message("The command was not found.", DIED, "PATH and image of that host."),
    255: Message("The connection (ssh) failed, or the program returned -1.", SUSPECT, "Can the host be reached?"),
}

_RESET = "Reset the GPU (drain the host first); if it comes back, hardware."
_CODE = "Restart the job; suspect the code (a kernel, an index out of range) before the GPU."
_NVLINK = "Check this host's NVLink with `nvidia-smi nvlink -e`; field diagnostics if it comes back."
_IGNORE = "Nothing to do for it alone."

XIDS: dict[int, Message] = {
    13: Message("Graphics engine exception: usually an illegal access by a kernel.", DIED, _CODE),
    31: Message("GPU memory page fault: usually an illegal address in a kernel.", DIED, _CODE),
    43: Message("The GPU stopped processing for this process after a fault.", CASCADE, "Follow the Xid before it."),
    45: Message(
        "Pre-emptive clean-up: work was removed because the process ended or failed.",
        CASCADE,
        "Follow the other Xid, or the death of the process.",
    ),
    46: Message("The GPU stopped processing (timeout).", MACHINE, _RESET),
    48: Message(
        "Double-bit ECC error: memory of the GPU cannot be corrected.",
        MACHINE,
        "Drain the host; look for 63 or 64 beside it, then reset; replace if it comes back.",
    ),
    62: Message("The GPU's own controller halted.", MACHINE, _RESET),
    63: Message(
        "A bad memory row or page was remapped: the repair worked.", CONTEXT, "It takes effect at the next reset."
    ),
    64: Message("A bad memory row or page could not be remapped.", MACHINE, _RESET),
    74: Message("NVLink error.", MACHINE, _NVLINK),
    79: Message(
        "The GPU has fallen off the bus.", MACHINE, "Restart the host; if it comes back: power, seating, hardware."
    ),
    92: Message("High rate of corrected ECC errors.", CONTEXT, _IGNORE),
    94: Message("Contained ECC error: only this process is hit.", MACHINE, "Restart the job; reset the GPU when idle."),
    95: Message("Uncontained ECC error: other processes may be hit.", MACHINE, _RESET),
    109: Message("Context switch timeout.", MACHINE, _RESET),
    119: Message("The GPU's system processor (GSP) does not answer.", MACHINE, _RESET),
    120: Message("Error in the GPU's system processor (GSP).", MACHINE, _RESET),
    140: Message("Uncorrected ECC error in a unit that cannot be contained.", MACHINE, _RESET),
    144: Message("NVLink error (SAW).", MACHINE, _NVLINK),
    145: Message("NVLink error (RLW).", MACHINE, _NVLINK),
    149: Message("NVLink error (NETIR: link event).", MACHINE, _NVLINK),
    150: Message("NVLink error (MSE).", MACHINE, _NVLINK),
    154: Message(
        "The recommended recovery changed; the text says to what.", CONTEXT, "Do what it says; see the Xid before it."
    ),
    158: Message("GPU timeout.", MACHINE, _RESET),
}

# Words as they stand in logs and code, in lower case.
RESULTS: dict[str, Message] = {
    "unhandled cuda error": Message(
        "ncclUnhandledCudaError (1): a CUDA call inside NCCL failed on this rank.",
        SUSPECT,
        "Often downstream of another: an Xid on its host, or an earlier CUDA error. NCCL_DEBUG=WARN says which call.",
    ),
    "unhandled system error": Message(
        "ncclSystemError (2): a system call or the network failed.",
        SUSPECT,
        "The `Last error:` line, or NCCL_DEBUG=WARN: sockets, shared memory, files, or a peer that is gone.",
    ),
    "internal error": Message(
        "ncclInternalError (3): a check inside NCCL failed.",
        SUSPECT,
        "Often memory corruption, mixed versions or a broken plugin; NCCL_DEBUG=WARN.",
    ),
    "invalid argument": Message(
        "ncclInvalidArgument (4): a call with a wrong argument.", DIED, "NCCL_DEBUG=WARN says which."
    ),
    "invalid usage": Message(
        "ncclInvalidUsage (5): used in a way that cannot work, such as two ranks on one GPU.",
        DIED,
        "NCCL_DEBUG=WARN; `torch.cuda.set_device(local_rank)`.",
    ),
    "remote process exited or there was a network error": Message(
        "ncclRemoteError (6): the other end went away. This rank is a victim.",
        WAITED,
        "Find the rank whose process ended first.",
    ),
    "operation in progress": Message("ncclInProgress (7): not an error; non-blocking mode.", CONTEXT),
}
RESULT_NAMES = {
    "ncclunhandledcudaerror": "unhandled cuda error",
    "ncclsystemerror": "unhandled system error",
    "ncclinternalerror": "internal error",
    "ncclinvalidargument": "invalid argument",
    "ncclinvalidusage": "invalid usage",
    "ncclremoteerror": "remote process exited or there was a network error",
    "ncclinprogress": "operation in progress",
}

STATES: dict[str, Message] = {
    "OUT_OF_MEMORY": Message(
        "Slurm: a process of the job was killed for memory.",
        NAMES,
        "`sacct -j JOB --format=JobID,State,MaxRSS,NodeList`: its sampling misses short peaks; dmesg has the pid.",
    ),
    "NODE_FAIL": Message("Slurm: a node of the job failed.", MACHINE, "`scontrol show node NODE`: Reason."),
    "PREEMPTED": Message(
        "Slurm: a job of higher priority took the nodes.", MACHINE, "Resume from the last checkpoint."
    ),
    "BOOT_FAIL": Message("Slurm: a node did not start.", MACHINE),
    "DEADLINE": Message("Slurm: the job's deadline passed.", MACHINE),
    "OOMKilled": Message(
        "Kubernetes: the container went over its memory limit and was killed.",
        NAMES,
        "resources.limits.memory; memory of the DataLoader workers; a memory-backed /dev/shm counts too.",
    ),
    "Evicted": Message(
        "Kubernetes: the kubelet removed the pod to save its node.", MACHINE, "`kubectl describe pod`: message."
    ),
    "DUE TO PREEMPTION": Message("Slurm ended the step for a job of higher priority.", MACHINE),
    "DUE TO TIME LIMIT": Message(
        "Slurm ended the step: its time was over.", MACHINE, "Save earlier (--signal), or ask for more."
    ),
    "DUE TO NODE FAILURE": Message(
        "Slurm ended the step because a node failed.", MACHINE, "`sinfo -R`: which one and why."
    ),
}

SETTINGS: dict[str, Message] = {
    "NCCL_TIMEOUT": Message(
        "Read by nobody: neither PyTorch nor NCCL knows it.",
        CONTEXT,
        "Use init_process_group(timeout=…) and new_group(timeout=…).",
    ),
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": Message(
        "How long the watchdog thread itself may stand still. It does not change the timeout of collectives.", CONTEXT
    ),
    "TORCH_NCCL_BLOCKING_WAIT": Message(
        "Waits in the caller instead of the watchdog: no watchdog lines, no dump.", CONTEXT
    ),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": Message(
        "Whether a failed collective ends the process; torchrun sets it to 1.", CONTEXT
    ),
    "TORCH_NCCL_TRACE_BUFFER_SIZE": Message(
        "Entries of the Flight Recorder (old name; default 0 before 2.7).",
        CONTEXT,
        "Set TORCH_FR_BUFFER_SIZE as well; 2000 is enough.",
    ),
    "TORCH_FR_BUFFER_SIZE": Message("Entries of the Flight Recorder.", CONTEXT),
    "TORCH_NCCL_DUMP_ON_TIMEOUT": Message("Whether a timeout writes the Flight Recorder's dump.", CONTEXT),
    "TORCH_NCCL_DESYNC_DEBUG": Message("Prints a report of all ranks' positions after a timeout.", CONTEXT),
    "TORCH_DISTRIBUTED_DEBUG": Message(
        "DETAIL checks every collective against the other ranks: slow, but it names mismatches.", CONTEXT
    ),
    "NCCL_DEBUG": Message("WARN prints NCCL's errors, INFO also transports and ranks.", CONTEXT),
    "NCCL_IB_TIMEOUT": Message(
        "Time before a packet is sent again: 4.096 us x 2^value x (retries + 1) until an error. 20: about 30 s.",
        CONTEXT,
    ),
    "NCCL_SOCKET_IFNAME": Message(
        "Interfaces for NCCL's sockets; `=eth0` is exact, `eth` a beginning, `^lo` all others.", CONTEXT
    ),
    "GLOO_SOCKET_IFNAME": Message("Interface for gloo; exactly one name.", CONTEXT),
    "NCCL_IB_GID_INDEX": Message(
        "Which address of a RoCE port is used; a wrong one cannot connect (error 22).", CONTEXT
    ),
    "NCCL_P2P_DISABLE": Message(
        "Switches direct GPU-to-GPU copies off: a test for PCIe and IOMMU trouble, slow.", CONTEXT
    ),
    "NCCL_IB_DISABLE": Message("Switches InfiniBand and RoCE off: everything goes over sockets.", CONTEXT),
    "CUDA_LAUNCH_BLOCKING": Message("Each kernel is waited for, so that an error shows where it is; slow.", CONTEXT),
}


def exit_code(code: int) -> tuple[str, Message] | None:
    """Name and meaning of an exit code: -9, 137 and 9 of `signal` are the same kill."""
    number = -code if code < 0 else code - 128 if 128 < code < 160 else None
    if number in SIGNALS:
        name, message = SIGNALS[number]
        return f"exit code {code} ({name})", message
    return (f"exit code {code}", EXITS[code]) if code in EXITS else None
