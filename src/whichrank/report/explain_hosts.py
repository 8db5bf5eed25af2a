"""What kernels, schedulers, drivers and tools on a host print, in plain words. The kinds are those of docs/facts.md."""

from __future__ import annotations

from whichrank.report.explain_messages import CONTEXT, MACHINE, NAMES, SUSPECT, Message

MEMORY = {
    "oom_kill": Message(
        "The kernel killed this process because memory ran out: the host's, or that of its control group (container, "
        "Slurm step).",
        NAMES,
        "Which rank is that pid, or the parent of that pid? A killed DataLoader worker takes its rank with it. Count "
        "anon-rss: workers times memory against the limit.",
    ),
    "memcg_usage": Message("How full the control group was whose limit was hit.", CONTEXT),
    "oom_constraint": Message("Which limit was hit: the whole host's memory or that of one control group.", CONTEXT),
    "oom_tasks": Message(
        "Which processes were in the control group whose limit was hit (or on the host): a rank's among them shows that "
        "the limit was the job's.",
        CONTEXT,
    ),
    "oom_event": Message(
        "The scheduler or container runtime counted a kill for memory, without saying which process.",
        MACHINE,
        "dmesg of that host says the pid.",
    ),
    "task_oom": Message("Slurm says that this task was killed for memory. Under srun the task is the rank.", NAMES),
    "pid_map": Message("Which process of the host a process in a container is.", CONTEXT),
    "disk": Message("How full a file system is.", CONTEXT, "Full /dev/shm, /tmp or checkpoint disks stop ranks."),
}

SCHEDULERS = {
    "pod_uid": Message("The UID of a pod: control groups carry it, so that a kill can be tied to its pod.", CONTEXT),
    "task_exit": Message(
        "Slurm's word on how tasks ended. Under srun the task is the rank.",
        SUSPECT,
        "The first task to go counts; those after it were ended.",
    ),
    "step_cancelled": Message(
        "Slurm ended the step: by preemption, its time limit, a failed node, or somebody's scancel.",
        MACHINE,
        "`sacct -j JOB --format=JobID,State,ExitCode,DerivedExitCode,NodeList,Comment`.",
    ),
    "job_state": Message("The scheduler's state of the job.", CONTEXT),
    "pod_evicted": Message(
        "Kubernetes removed the pod from its node, usually because the node ran low on memory or disk.",
        MACHINE,
        "`kubectl describe pod` and `kubectl describe node`: requests and limits, ephemeral storage.",
    ),
    "pod_oom": Message(
        "The container went over its memory limit and was killed.", NAMES, "Raise the limit or use fewer workers."
    ),
    "pod_preempted": Message("A pod with higher priority took this one's place.", MACHINE, "Priority class, or quota."),
    "container_exit": Message(
        "How the container ended. 137 alone is only signal 9: memory if the reason says OOMKilled.",
        SUSPECT,
        "`kubectl get pod -o yaml`: lastState.terminated.reason; the node's events.",
    ),
    "node_event": Message("The cluster reports something about a node.", MACHINE),
}

KERNEL = {
    "frozen": Message(
        "A process was stopped, not killed: by a guard that sends SIGSTOP, a frozen control group, or suspend.",
        SUSPECT,
        "If it is a rank or its worker, the others wait for it: who stopped it, and `kill -CONT PID` to let it go on.",
    ),
    "hung_task": Message(
        "A process has been in an uninterruptible wait for minutes: nearly always storage that does not answer.",
        SUSPECT,
        "The frames below the line name the file system; mounts of that host. The kernel stops reporting after ten.",
    ),
    "soft_lockup": Message("A CPU was stuck in the kernel for that long.", MACHINE, "The frames below it; drivers."),
    "storage_stall": Message(
        "A network file system stopped answering (or answers again): whoever reads or writes on it waits.",
        MACHINE,
        "One host: its mount or network. All hosts in the same minutes: the server.",
    ),
    "io_error": Message("A disk reported errors.", MACHINE, "`smartctl -a`, and whether the training reads it."),
    "switch_down": Message(
        "A switch went down: all hosts behind it lose their links at once.",
        MACHINE,
        "Which nodes hang on it (topology.conf, UFM), and which other jobs died in the same minute.",
    ),
    "link": Message(
        "A network port went down or up.",
        MACHINE,
        "A down that comes before the first timeout counts; cable, optics, switch port.",
    ),
    "pcie_error": Message(
        "The PCIe bus reported errors. Corrected ones are noise unless they come in floods.",
        MACHINE,
        "Fatal or non-fatal ones: which device? Reseat or replace.",
    ),
    "gpu_lost": Message("A GPU no longer answers on the bus.", MACHINE, "Restart the host; then hardware."),
    "xid": Message(
        "The NVIDIA driver reports a GPU event; its number says which.",
        MACHINE,
        "Some are the code's fault (13, 31), some secondary (43, 45): see the number.",
    ),
    "sxid": Message("The driver reports an NVSwitch event; all GPUs of the host may be hit.", MACHINE),
    "nic_error": Message(
        "A network card reported trouble of its own: a hot or broken module, too little power, firmware that died.",
        MACHINE,
        "Take the host out of use; cable, transceiver, slot.",
    ),
    "gpu_error": Message(
        "A driver other than NVIDIA's reports that a GPU hung, was reset or met memory that it could not correct; a page "
        "fault is usually the code's own address.",
        MACHINE,
        "Ring timeout, reset, RAS: reset the GPU, take the host out if it returns. Page fault: look at the kernel's code.",
    ),
    "net_limit": Message(
        "A table of the kernel is full (connections, neighbours, TCP's memory, a listening queue): packets or new "
        "connections are dropped.",
        MACHINE,
        "nf_conntrack_max, net.ipv4.neigh.default.gc_thresh3, net.ipv4.tcp_mem, net.core.somaxconn on that host.",
    ),
    "throttled": Message("The CPU got hot and was slowed down.", MACHINE, "Cooling of the host; its ranks are slow."),
    "visible_devices": Message("Which GPUs, in which order, the processes of a host see.", CONTEXT),
    "bus_ids": Message("Which bus id each GPU index has: joins a kernel message to a rank.", CONTEXT),
    "mce": Message("The CPU or memory of the host reported a hardware error.", MACHINE, "Take the host out of use."),
}

TOOLS = {
    "counter": Message(
        "A count of errors or events of a port, a GPU, a mount or a control group, since that began.",
        CONTEXT,
        "Only what grows tells: take it twice.",
    ),
    "io_sample": Message(
        "How long a disk or a file server took for a request. The first report of iostat and nfsiostat is an average "
        "since the boot or the mount; those after it are of their own interval.",
        CONTEXT,
        "Seconds a request during the hang: that disk or server is what its host waited for.",
    ),
    "pressure": Message(
        "How short a host is of memory, disk time or processors: the share of time in which work waited for it.",
        CONTEXT,
        "`full` means that nothing ran at all meanwhile. Above 40 % over a minute it explains a slow rank.",
    ),
    "gpu_health": Message(
        "A health check of a GPU that did not pass. A warning is not what stopped a job.",
        MACHINE,
        "`dcgmi diag -r 3` on that host while no job runs there.",
    ),
    "gpu_topology": Message(
        "How the GPUs of a host are joined (NV: NVLink, SYS and NODE: through the processors), and its adapters.",
        CONTEXT,
        "Compare with hosts of the same kind: one that has less has lost a link, a bridge or an adapter.",
    ),
    "connection": Message(
        "A TCP connection. SYN-SENT has had no answer at all: a firewall that drops, a wrong route, a host that is off.",
        CONTEXT,
        "Is it the job's own, to whom, and do other hosts reach the same port? `ss -tanpo` on both ends.",
    ),
    "clock_offset": Message(
        "How far the host's clock was off when it was asked: below zero it is behind, and its stamps are too early.",
        CONTEXT,
        "From some seconds on, lines of different hosts must not be put in order by their stamps.",
    ),
    "sysctl": Message("A setting of the kernel that some failures turn on.", CONTEXT, "The same on all hosts?"),
    "gpu_sample": Message(
        "How busy a GPU was. A rank that waits in an NCCL kernel shows near 100 %, one that never launched shows 0 %.",
        CONTEXT,
        "One at 0 % among many at 100 % is the suspect: get its stack.",
    ),
    "mtu": Message("Packet size of an interface.", CONTEXT, "It must be the same along the whole path."),
    "ip_address": Message("An address of an interface.", CONTEXT),
    "resolves": Message("What a name resolves to on this host.", CONTEXT, "It must be an address others can reach."),
    "version": Message(
        "What a host has installed, or may do (memlock_kb: how much memory a process may pin).",
        CONTEXT,
        "torch, NCCL and the driver have to fit on all nodes of a job; RDMA wants `ulimit -l unlimited`.",
    ),
    "bandwidth": Message("Measured bandwidth, of a pair of hosts or of a collective.", CONTEXT, "Compare the pairs."),
    "wrong_values": Message(
        "nccl-tests compared the results with what they should be: values were wrong. Data is corrupted by a GPU, its "
        "memory or a link.",
        MACHINE,
        "Run it within each host and between pairs: the host that all bad runs share is the one.",
    ),
    "debug_silent": Message(
        "This rank gave PyTorch's debug server no answer: 408 in the dump of stacks, which needs the GIL, means that the "
        "GIL is held; 503 that the process is gone.",
        SUSPECT,
        "`py-spy dump --native --pid PID` on its host.",
    ),
    "wait_counter": Message("What a thread of this rank waits in, by PyTorch's own counters.", CONTEXT),
    "expected_busbw": Message("The bandwidth that should be there.", CONTEXT),
    "stack": Message(
        "Where a process stood when it was looked at.",
        SUSPECT,
        "In a collective: a victim. In data loading, saving, evaluation, compiling or a lock while others wait in a "
        "collective: the culprit, and this is why.",
    ),
    "phase": Message(
        "What a rank's main thread was in, and for how long, as its own recorder kept it until the last moment.",
        SUSPECT,
        "Long in a collective: a victim. Long in a batch, a checkpoint, evaluation or its own code while others are in a "
        "collective: the one they wait for.",
    ),
    "stall": Message(
        "The watcher saw these ranks in one phase for longer than the job's own past allows, while others waited.",
        SUSPECT,
        "The stacks and the ranks' recorders of that moment, in the same run directory.",
    ),
    "rank_end": Message("The watcher saw this rank's process end.", SUSPECT, "The first to go without a word counts."),
    "file_wait": Message(
        "The kernel held this process in a read or write, at two looks, and next to nothing went through meanwhile.",
        SUSPECT,
        "The disk or file server below it: `dmesg`, `iostat -x 1 5`, `nfsiostat 1 5` of that host.",
    ),
    "mount_silent": Message(
        "A mount that a stuck process has open was asked for its state and gave no answer in time.",
        MACHINE,
        "The file server, and `dmesg` of that host.",
    ),
    "process": Message("A process as ps shows it; state D is a wait for storage or a device.", CONTEXT),
    "ras_counts": Message(
        "NCCL's RAS: how many collectives each rank has launched.",
        CONTEXT,
        "Ask twice: only a difference that stays tells. The fewer are behind, whichever set is listed. Do not ask NCCL "
        "2.26.2, 2.26.5 and 2.27.3: jobs have crashed on it.",
    ),
    "ras_missing": Message("NCCL's RAS has lost these ranks: dead, or not answering.", SUSPECT, "Do they still live?"),
    "ras_status": Message("NCCL's RAS on a communicator as a whole. OK does not mean healthy.", CONTEXT),
}
