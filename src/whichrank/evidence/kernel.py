"""Kernel log: OOM kills, hung tasks, storage, links, PCIe, GPU Xid, crashes, machine checks.

Reads dmesg (both stamps), `journalctl -k`, syslog, and such lines inside other logs. Formats: Linux 3.10 to 6.12
(mm/oom_kill.c, kernel/hung_task.c, net/sunrpc/clnt.c, drivers/pci/pcie/aer.c), NVIDIA driver 470 to 580, mlx5_core,
Lustre 2.12 to 2.15, amdgpu 5.4 to 6.12 (amdgpu_job.c, amdgpu_ras.c, gmc_v9_0.c), i915, xe. The hung-task watchdog skips killable waits and falls silent after 10 reports: its absence proves
nothing. A corrected PCIe error alone is no fault.

>>> from whichrank.evidence.sample import facts
>>> kill, = facts(READER, "[  625.867793] Memory cgroup out of memory: Killed process 13513 (python3) total-vm:221356kB, "
...     "anon-rss:50944kB, file-rss:68kB, shmem-rss:0kB, UID:0 pgtables:480kB oom_score_adj:0")
>>> kill.kind, kill.who.pid, kill.clock, kill.at, kill["comm"], kill["rss_kb"], kill["cgroup"]
('oom_kill', 13513, 'boot', 625.867793, 'python3', 50944, True)
>>> xid, = facts(READER, "[Wed May 20 21:09:26 2026] NVRM: Xid (PCI:0000:ba:00): 79, pid='<unknown>', name=<unknown>, "
...     "GPU has fallen off the bus.")
>>> xid.who.gpu, xid["code"], xid["text"]
('0000:ba:00', 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
"""

from __future__ import annotations

from whichrank.evidence.kernel_blocks import HungTask, KernelTask, read_power, read_sensor, read_waiter
from whichrank.evidence.kernel_tasks import OomTasks
from whichrank.evidence.scan import Line, Reader

_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"  # a GPU as the driver names it: domain, bus, device
_DEVICE = rf"(?P<device>{_BDF}\.[0-9a-f])"
_IFACE = r"(?P<interface>[A-Za-z][\w.@-]{0,30})"
_NIC = rf"(?=[0-9a-f]{{4}}:|[A-Za-z])(?:{_DEVICE}[: ]+)?(?:(?!SATA){_IFACE})?:? (?:\w+:\d+:\(pid \d+\): )?(?:NIC )?[Ll]ink (?:is )?"
_NOT_XID = r"^(?!.*(?:Xid \(|PCIe Bus Error))"

# fmt: off
_MEMORY = (
    Line(
        "oom_kill",
        "emory cgroup out of memory: Kill",
        r"^(?!\S+\s+(?:Normal|Warning)\s).*emory cgroup out of memory: Killed process (?P<pid>\d+),? (?:UID \d+,? )?\((?P<comm>.+?)\)(?:.*?total-vm:(?P<vm_kb>\d+)kB)?(?:.*?anon-rss:(?P<rss_kb>\d+)kB)?(?:.*?shmem-rss:(?P<shmem_kb>\d+)kB)?",
        {"cgroup": True},
    ),
    Line(
        "oom_kill",
        "Out of memory: Killed process",
        r"^(?!\S+\s+(?:Normal|Warning)\s).*Out of memory: Killed process (?P<pid>\d+),? (?:UID \d+,? )?\((?P<comm>.+?)\)(?:.*?total-vm:(?P<vm_kb>\d+)kB)?(?:.*?anon-rss:(?P<rss_kb>\d+)kB)?(?:.*?shmem-rss:(?P<shmem_kb>\d+)kB)?",
        {"cgroup": False},
    ),
    # Linux before 4.20 announces the kill on one line (whose cgroup or not) and reports it on the next.
    Line(
        "oom_kill",
        "Killed process",
        r"^(?!.*ut of memory: Killed).*\bKilled process (?P<pid>\d+),? (?:UID \d+,? )?\((?P<comm>.+?)\),? (?:UID \d+,? )?total-vm:(?P<vm_kb>\d+)kB, anon-rss:(?P<rss_kb>\d+)kB",
    ),
    Line(
        "oom_kill",
        ("to process", "killing process"),
        r"earlyoom.*sending SIG(?:KILL|TERM) to process (?P<pid>\d+)(?: uid \d+)? \"(?P<comm>[^\"]+)\"",
        {"cgroup": False, "by": "earlyoom"},
    ),
    Line(
        "oom_constraint",
        "oom-kill:constraint=",
        r"oom-kill:constraint=(?P<constraint>\w+),.*?(?:oom_memcg=(?P<memcg>[^,]*),|global_oom,)task_memcg=(?P<task_memcg>[^,]*),task=(?P<comm>[^,]*),pid=(?P<pid>\d+)",
    ),
    Line(
        "oom_constraint",
        "killed as a result of limit of",
        r"Task in (?P<task_memcg>\S+) killed as a result of limit of (?P<memcg>\S+)",
        {"constraint": "CONSTRAINT_MEMCG"},
    ),
    Line("memcg_usage", "emory: usage", r"(?<!\w)memory: usage (?P<usage_kb>\d+)kB, limit (?P<limit_kb>\d+)kB, failcnt (?P<failcnt>\d+)"),
    Line("oom_event", "killed by the OOM killer", r"(?P<unit>[\w@.\\-]{1,200}\.(?:service|scope|slice)): A process of this unit has been killed by the OOM killer"),
    Line("oom_event", "due to memory pressure", r"systemd-oomd.*Killed (?P<unit>\S+) due to memory pressure"),
    # cgroup v2 memory.events, v1 memory.oom_control: the count since the cgroup began, no event of this hour.
    Line("counter", "oom_kill ", r"(?:^|[\s:])(?P<name>oom_kill) (?P<value>\d+)\s*$", {"snapshot": 1}),
    # The report of the kill is rate-limited; the reaper's line may be all that is left of it.
    Line("oom_kill", "oom_reaper: reaped process", r"oom_reaper: reaped process (?P<pid>\d+) \((?P<comm>.+?)\)", {"reaper": True}),
    Line("pressure", ("page allocation stalls", "page allocation failure"), r"(?:^|[\]:] )(?P<comm>[\w./+:-]{1,20}): page allocation (?:stalls for (?P<ms>\d+)ms|failure)[,:] .*?order:(?P<order>\d+)", {"resource": "memory"}),
)

_TASKS = (
    Line("soft_lockup", "soft lockup", r"soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<seconds>\d+)s! \[(?P<comm>.+):(?P<pid>\d+)\]"),
    Line("soft_lockup", "hard LOCKUP", r"detected hard LOCKUP on cpu (?P<cpu>\d+)", {"hard": True}),
    Line("soft_lockup", ("self-detected stall on CPU", "detected stalls on CPUs/tasks"), r"(?i:rcu)\w*:? .*(?:self-detected stall on CPU|detected stalls on CPUs/tasks)", {"rcu": True}),
    Line(
        "process",
        "state:",
        r"task:(?P<command>.+?) +state:(?P<stat>\w) +stack: *\d+ +pid: *(?P<pid>\d+)(?: +tgid: *(?P<tgid>\d+))? +ppid: *(?P<ppid>\d+)",
    ),
    # Guards that stop a process instead of killing it
    Line("frozen", "SIGSTOP", r"\b[Pp](?:id|rocess)[ =:]+(?P<pid>\d+)(?: \((?P<comm>[^)]+)\))?[^\n]*\bSIGSTOP\b"),
    Line("frozen", "SIGSTOP", r"\bSIGSTOP\b[^\n]*?\b[Pp](?:id|rocess)[ =:]+(?P<pid>\d+)"),
    Line("frozen", ("FROZEN", "frozen 1"), r"freezer\.state\S*\s+FROZEN|^\s*frozen 1\s*$"),
    Line("frozen", ("reezing user space", "Freezing remaining"), r"Freezing (?:user space processes|remaining freezable tasks)"),
)

_STORAGE = (
    Line("storage_stall", "not responding, still trying", r"nfs4?: server (?P<server>\S+) not responding, still trying", {"fs": "nfs", "state": "stalled"}),
    Line("storage_stall", "not responding, timed out", r"nfs4?: server (?P<server>\S+) not responding, timed out", {"fs": "nfs", "state": "timed_out"}),
    Line("storage_stall", "server", r"nfs4?: server (?P<server>\S+) OK\s*$", {"fs": "nfs", "state": "ok"}),
    Line("storage_stall", "was lost; in progress", r"Connection to (?P<server>\S+) \(at \S+\) was lost; in progress operations", {"fs": "lustre", "state": "stalled"}),
    Line("storage_stall", "was evicted by", r"was evicted by (?P<server>[\w.-]+)", {"fs": "lustre", "state": "evicted"}),
    Line("storage_stall", "Connection restored to", r"Connection restored to (?P<server>[\w.-]+)", {"fs": "lustre", "state": "ok"}),
    Line(
        "storage_stall",
        ("has timed out for s", "has failed due to network error"),
        r"Request sent has (?:timed out for s|failed due to network error).*?->(?P<server>[\w-]+?)(?:-(?:osc|mdc|mgc))?(?:-ffff\w+)?@",
        {"fs": "lustre", "state": "stalled"},
    ),
    Line("storage_stall", ("hunting for new mon", "socket closed (con state", "session lost"), r"(?:libceph|ceph): (?P<server>(?:mon|osd|mds)\d+)\b.*(?:session lost|socket closed|connection lost)", {"fs": "ceph", "state": "stalled"}),
    Line("storage_stall", ("caps stale", "hung"), r"ceph: (?P<server>mds\d+) (?:caps stale|hung)", {"fs": "ceph", "state": "stalled"}),
    Line("storage_stall", ("session established", "reconnect success", "recovery completed", "caps renewed"), r"(?:libceph|ceph): (?P<server>(?:mon|mds)\d+)\b.*(?:session established|reconnect success|recovery completed|caps renewed)", {"fs": "ceph", "state": "ok"}),
    Line("storage_stall", ("rejected session", "blocklisted", "blacklisted"), r"(?:libceph|ceph): .*?(?P<server>mds\d+)?.*(?:rejected session|blocklisted|blacklisted)", {"fs": "ceph", "state": "evicted"}),
    Line("storage_stall", ("expelled", "Lost membership", "lost membership", "isk lease"), r"(?:mmfs|GPFS|gpfs|\[[NEXW]\]).*(?:was expelled|been expelled|expelled from|[Ll]ost membership|[Dd]isk lease (?:period )?(?:expired|overdue))", {"fs": "gpfs", "state": "evicted"}),
    Line("storage_stall", ("long waiter", "longwaiter"), r"(?:mmfs|GPFS|gpfs).*long ?waiters?", {"fs": "gpfs", "state": "stalled"}),
    Line("storage_stall", " sec since ", r"Waiting (?P<seconds>\d{2,})(?:\.\d+)? sec since [\d:]+, (?:monitored|ignored), thread \d+ .*?reason '[^']*'(?: for \S+)?(?: on node (?P<server>[\w.-]+))?", {"fs": "gpfs", "state": "stalled"}, read=read_waiter),
    Line("storage_stall", ("Stale file handle", "Stale NFS file handle", "Transport endpoint is not connected"), r"^(?:\S+: )?(?:df|ls|stat|du|cat|cp|find|mount\S*): (?:cannot (?:access|open|stat) )?[‘'\"]?(?P<server>/[\w./+-]+)[’'\"]?: (?:Stale (?:NFS )?file handle|Transport endpoint is not connected)", {"fs": "mount", "state": "stalled"}),
    Line("storage_stall", ("beegfs", "BeeGFS"), r"(?i:beegfs).*(?:[Tt]imed out|Connect(?:ion)? (?:failed|lost)|Retrying communication|unreachable|Unable to connect)(?:.*?(?:from|to|node:?) (?P<server>[\w./-]+ ?[\w.-]*\d))?", {"fs": "beegfs", "state": "stalled"}),
    Line("storage_stall", "has not responded in", r"CIFS:.* (?P<server>\\\\\S+) has not responded in \d+ seconds", {"fs": "cifs", "state": "stalled"}),
    Line("io_error", ("I/O error", "critical medium error", "critical target error"), r"(?:I/O error|critical (?:medium|target|space allocation) error),? (?:on )?dev (?P<device>[\w./-]+)"),
    Line("io_error", ("EXT4-fs error", "BTRFS error", "F2FS-fs error", "BTRFS critical"), r"(?:EXT4-fs|BTRFS|F2FS-fs) (?:error|critical) \(device (?P<device>[\w/-]+)\)"),
    Line("io_error", "XFS (", r"XFS \((?P<device>[\w/-]+)\): .*(?:I/O error|[Cc]orruption|Shutting down filesystem|log I/O error)"),
    Line("io_error", "emounting filesystem read-only", r"\((?:device )?(?P<device>[\w/-]+)\): Remounting filesystem read-only"),
    Line("io_error", "nvme", r"(?:nvme )?(?P<device>nvme\d+)(?:n\d+|c\d+n\d+)?\b.*(?:I/O (?:tag )?\d+.*timeout|controller is down|I/O Cmd\(.*I/O Error|[Rr]emoving after probe failure|Device not ready)"),
)

_DISK = (
    Line("io_error", "isk failure on", r"Disk failure on (?P<device>[\w/-]+)"),
    Line("io_error", "disk failure detected", r"(?P<device>md\d+): .*(?:disk failure detected|Disk failure)"),
)
_LINKS = (
    Line("link", ("ink down", "ink is Down", "ink Down", "ink is down"), rf"{_NIC}[Dd]own\b", {"state": "down"}),
    Line("link", ("ink up", "ink is Up", "ink Up", "ink is up"), rf"{_NIC}[Uu]p\b", {"state": "up"}),
    Line("link", ("status definitely", "link status down"), rf"\bslave {_IFACE}\):? link status (?:definitely )?(?P<state>down|up)"),
    Line("link", "link status definitely", rf"link status definitely (?P<state>down|up) for (?:active )?(?:interface|slave) {_IFACE}"),
    Line("link", "without any active interface", rf"{_IFACE}: now running without any active interface", {"state": "down"}),
    Line("link", "Lost carrier", rf"{_IFACE}: Lost carrier", {"state": "down"}),
    Line("link", "Gained carrier", rf"{_IFACE}: Gained carrier", {"state": "up"}),
    Line("link", ("carrier-changed", "(reason 'carrier"), rf"device \({_IFACE}\): state change: activated -> unavailable", {"state": "down"}),
    Line("link", ("ort: ", "ort "), r"(?P<device>mlx\d_\d+)\W.*?[Pp]ort:? ?\d+.*?(?:logical |physical )?(?i:link|state)\b.*?(?P<state>down|DOWN|up|UP|ACTIVE)\b", tidy=lambda values: values.update(state="down" if values["state"].lower() == "down" else "up")),
    Line("link", "ink went down", r"ink went down: \(Switch: (?P<switch>[\w.-]+) Port (?P<port>\w+)\)\S* -> (?P<host>[\w.-]+) (?P<interface>\w+)", {"state": "down"}),
    Line("switch_down", ("witch ", "ode is Down"), r"(?P<text>\b[Ss]witch:? (?P<device>[\w.-]+) (?:is|went) (?:down|unreachable)|Node is Down,(?P<device_>[\w.-]+))", tidy=lambda values: values.update(device=values.get("device") or values.pop("device_", None))),
    Line("link", "Cable unplugged", rf"{_DEVICE}: Port module event: module \d+, Cable unplugged", {"state": "down"}),
    Line("nic_error", ("Port module event", "igh Temperature", "igh temperature"), rf"{_DEVICE}.*?(?P<text>Port module event\[error\].*|Port module event.*[Hh]igh [Tt]emperature.*|High [Tt]emperature.*)"),
    Line("nic_error", "insufficient power", rf"{_DEVICE}.*?(?P<text>Detected insufficient power on the PCIe slot.*)"),
    Line("nic_error", ("Fatal error", "health compromised", "unrecoverable hardware error", "handling bad device", "TX timeout", "wait_func", "Health issue observed"), rf"mlx[45]_core {_DEVICE}(?: {_IFACE})?: (?P<text>.*(?:Health issue observed, .*severity\([0-3]\)|[Ff]atal error|health compromised|unrecoverable hardware error|handling bad device|TX timeout|timeout\. Will cause a leak).*)"),
    Line("nic_error", "transmit queue", rf"NETDEV WATCHDOG: {_IFACE} \([^)]*\): (?P<text>transmit queue \d+ timed out.*)"),
)

_PCIE = (
    Line("pcie_error", "severity=Corrected", rf"{_DEVICE}: (?:AER: )?PCIe Bus Error: severity=Correct\w+, type=(?P<type>[^,]+)", {"severity": "corrected"}),
    Line("pcie_error", ("severity=Uncorrect", "severity=Non", "severity=Fatal"), rf"{_DEVICE}: (?:AER: )?PCIe Bus Error: severity=(?:Uncorrect\w+ )?\(?Fatal\)?, type=(?P<type>[^,]+)", {"severity": "fatal"}),
    Line("pcie_error", "severity=Uncorrect", rf"{_DEVICE}: (?:AER: )?PCIe Bus Error: severity=Uncorrect\w+ \(Non-?Fatal\), type=(?P<type>[^,]+)", {"severity": "nonfatal"}),
    Line("pcie_error", ("(Fatal) error", "(Fatal) error message"), rf"{_DEVICE}: AER: (?P<type>(?:Multiple )?Uncorrect\w+ \(Fatal\) error)", {"severity": "fatal"}),
    Line("pcie_error", "can't recover", rf"\bnvidia (?P<device>(?P<gpu>{_BDF})\.[0-9a-f]): AER: (?P<type>can't recover[^\n]*)", {"severity": "fatal"}),
    Line("pcie_error", "can't recover", rf"(?<!nvidia ){_DEVICE}: AER: (?P<type>can't recover[^\n]*)", {"severity": "fatal"}),
    Line("pcie_error", "ecovery failed", rf"{_DEVICE}: AER: (?P<type>[Dd]evice recovery failed)", {"severity": "fatal"}),
    Line("pcie_error", "ecovery successful", rf"{_DEVICE}: AER: (?P<type>[Dd]evice recovery successful)", {"severity": "recovered"}),
    Line("pcie_error", "containment event", rf"{_DEVICE}: DPC: (?P<type>containment event)", {"severity": "fatal"}),
    Line("p2p_info", "IO_PAGE_FAULT", rf"(?P<text>(?:nvidia )?{_DEVICE}: AMD-Vi: Event logged \[IO_PAGE_FAULT.*)"),
    Line("p2p_info", "DMAR:", r"(?P<text>DMAR: \[(?:DMA (?:Read|Write)|INTR-REMAP)[^\]]*\] Request device \[(?P<device>[0-9a-f:.]+)\].*)"),
    Line("pcie_error", "pciehp", rf"{_DEVICE}: pciehp: Slot\([^)]*\): (?P<type>Link Down|Card not present)", {"severity": "fatal"}),
)

_GPU = (
    Line(
        "xid",
        "Xid (",
        rf"(?<![S])Xid \((?:PCI:)?(?P<gpu>{_BDF})(?:\.[0-9a-f])?[^)]*\): (?P<code>\d+), (?P<text>(?:pid=(?:(?P<pid>\d+)|'?(?P<pid_text><[^,']*)'?))?.*)",
    ),
    Line(
        "xid",
        ("Xid ", "XID "),
        rf"^(?:.*?\d\d:\d\d:\d\d\S* (?P<host>[A-Za-z][\w.-]*\d[\w.-]*) )?.*\bX[Ii][Dd](?: error)?:? (?P<code>\d{{1,3}})\b,? (?:(?:was )?(?:on|for|detected on|reported (?:by|on)) )(?P<text>(?:GPU|PCI)[ :]*(?:PCI:)?(?P<gpu>{_BDF}).*)",
    ),
    Line("sxid", ("Non-fatal", "Non-Fatal"), rf"SXid \((?:PCI:)?{_DEVICE}\): (?P<code>\d+), Non-[Ff]atal, ?(?P<text>.*)", {"fatal": False}),
    Line("sxid", "Fatal", rf"SXid \((?:PCI:)?{_DEVICE}\): (?P<code>\d+), Fatal, ?(?P<text>.*)", {"fatal": True}),
    Line("gpu_lost", "fallen off the bus", rf"{_NOT_XID}.*NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<device>(?P<gpu>{_BDF})(?:\.[0-9a-f])?):? .*fallen off the bus"),
    Line("gpu_lost", "fallen off the bus", rf"{_NOT_XID}.*NVRM: (?!.*{_BDF}).*fallen off the bus"),
    Line("gpu_lost", ("RmInitAdapter failed", "rm_init_adapter failed"), rf"{_NOT_XID}.*NVRM: (?:GPU (?P<device>(?P<gpu>{_BDF})(?:\.[0-9a-f])?): )?.*(?:RmInitAdapter|rm_init_adapter) failed"),
    Line("gpu_lost", ("GPU is lost", "GPU_IS_LOST", "GPU lost from the bus"), rf"{_NOT_XID}.*NVRM: .*?(?:(?P<device>(?P<gpu>{_BDF})(?:\.[0-9a-f])?).*)?(?:GPU is lost|GPU_IS_LOST|GPU lost from the bus)"),
    Line("gpu_lost", ("device lost from bus", "GPU Recovery Failed"), rf"amdgpu (?P<device>(?P<gpu>{_BDF})\.\d): .*?(?:device lost from bus|GPU Recovery Failed)"),
    # amdgpu, i915, xe, habanalabs: a ring or the whole GPU that hangs and is reset; errors that memory could not correct
    Line("gpu_error", ("GPU reset begin", "GPU reset("), rf"amdgpu (?P<device>(?P<gpu>{_BDF})\.\d): .*?(?P<text>GPU reset begin.*|GPU reset\(\d+\) failed.*)", {"what": "reset"}),
    Line("gpu_error", " timeout, signaled seq=", rf"(?:amdgpu (?P<device>(?P<gpu>{_BDF})\.\d): (?:amdgpu: )?|\*ERROR\* )(?P<text>ring (?P<ring>\S+) timeout, signaled seq=.*)", {"what": "ring_timeout"}),
    Line("gpu_error", "uncorrectable hardware errors detected", rf"amdgpu (?P<device>(?P<gpu>{_BDF})\.\d): .*?(?P<text>[1-9]\d* (?:new )?uncorrectable hardware errors detected (?:in total )?in (?P<block>\w+) block)", {"what": "ras"}),
    Line("gpu_error", "uncorrectable hardware error(ERREVENT", rf"amdgpu (?P<device>(?P<gpu>{_BDF})\.\d): .*?(?P<text>uncorrectable hardware error\(ERREVENT_(?P<block>\w+?)_INTERRUPT\) detected.*)", {"what": "ras"}),
    Line("gpu_error", "page fault (src_id", rf"amdgpu (?P<device>(?P<gpu>{_BDF})\.\d): .*?(?P<text>\[\w+\] (?:no-)?retry page fault \(src_id:\d+ .*?(?:for process (?P<comm>.*?) pid (?P<pid>[1-9]\d*)\b.*)?$)", {"what": "page_fault"}),
    Line("gpu_error", ("qcm fence wait loop timeout", "The cp might be in an unrecoverable state"), rf"amdgpu:? ?(?:(?P<device>(?P<gpu>{_BDF})\.\d): )?.*?(?P<text>qcm fence wait loop timeout expired|The cp might be in an unrecoverable state.*)", {"what": "hang"}),
    Line("gpu_error", "GPU HANG: ecode", rf"(?:i915 (?P<device>(?P<gpu>{_BDF})\.\d): )?\[drm\] (?P<text>GPU HANG: ecode \S+(?: in (?P<comm>.+?) \[(?P<pid>\d+)\])?)", {"what": "hang"}),
    Line("gpu_error", "Timedout job: seqno=", rf"xe (?P<device>(?P<gpu>{_BDF})\.\d): (?:.*?: )?(?P<text>Timedout job: seqno=\d+.*?(?: in (?P<comm>.+?) \[(?P<pid>\d+)\])?$)", {"what": "hang"}),
    Line("gpu_error", "evice heartbeat failed", rf"(?:habanalabs|accel) (?:(?P<device>(?P<gpu>{_BDF})\.\d)|(?:hl|accel!?accel|accel)\d+): (?P<text>[Dd]evice heartbeat failed.*)", {"what": "hang"}),
)

_FAULTS = (
    Line(
        "segfault",
        ("segfault at", "general protection", "invalid opcode"),
        r"(?:^|[\]:] )(?:traps: )?(?P<comm>[\w./+-](?:[\w ./:+-]{0,14}?[\w./+-])?)\[(?P<pid>\d+)\]:? (?:segfault at|general protection|trap invalid opcode).*?(?: in (?P<library>[^\[\s]+)\[.*)?$",
    ),
    Line("mce", "Machine Check", r"(?P<text>(?:CPU \d+: )?Machine Check(?: Exception)?: .*)"),
    Line("mce", "EDAC", r"(?P<text>EDAC \w+: \d+ UE .*)"),
    Line("mce", "EDAC", r"(?P<text>EDAC \w+: \d+ CE .*)", {"corrected": True}),
    Line("mce", "Machine check events logged", r"(?P<text>\[Hardware Error\]: Machine check events logged)", {"corrected": True}),
    Line("mce", "due to hardware memory corruption", r"(?P<text>(?:Memory failure|MCE)(?:: 0x[0-9a-f]+| 0x[0-9a-f]+)?: (?:Killing|Sending SIGBUS to) (?P<comm>.+?):(?P<pid>\d+)(?: early)? due to hardware memory corruption.*)"),
    Line("mce", "Memory failure:", r"(?P<text>Memory failure: 0x\w+: (?!.*due to hardware memory corruption).*)"),
    # Tables of the kernel that are full: new connections and packets are dropped
    Line("net_limit", ("table full, dropping packet", "neighbor table overflow", "out of memory -- consider tuning tcp_mem", "Possible SYN flooding on port"), r"(?P<text>nf_conntrack: table full, dropping packet|neighbou?r: \w+: neighbor table overflow|TCP: out of memory -- consider tuning tcp_mem|TCP: (?:request_sock_\w+: )?Possible SYN flooding on port (?P<port>\d+))"),
    Line("throttled", ("clock throttled", "temperature above threshold"), r"(?P<device>CPU\d+): (?P<text>(?:Core|Package) temperature.* above threshold.*)"),
    # The machine's own event log (ipmitool sel list)
    Line("node_event", "Asserted", r"\| *(?P<message>[^|]*(?:Power (?:Unit|Supply)|PSU)[^|]*\| *(?:Power off/down|Power Supply AC lost|Power lost|Failure detected|Power cycle)[^|]*)\| *Asserted", read=read_power),
    Line("node_event", "Asserted", r"\| *(?P<message>(?:Fan|Temperature|Temp|Processor|Memory|Critical Interrupt|Drive Slot)[^|]*\|[^|]*(?:[Cc]ritical|IERR|Uncorrectable|Fault|PCI (?:PERR|SERR)|Thermal Trip)[^|]*)\| *Asserted", read=read_sensor),
    Line("node_event", "Kernel panic", r"Kernel panic - not syncing: (?P<message>.*)", {"reason": "KernelPanic"}),
    Line("node_event", ("reboot: ", "is rebooting", "is powering down", "hutting down."), r"(?:reboot: |systemd-logind\S*: |systemd\[1\]: )(?P<message>Restarting system|Power down|System is (?:rebooting|powering down)|Shutting down\.)", {"reason": "Shutdown"}),
)
# fmt: on

LINES = (*_MEMORY, *_TASKS, *_STORAGE, *_DISK, *_LINKS, *_PCIE, *_GPU, *_FAULTS)

READER = Reader(
    "kernel",
    LINES,
    (HungTask(), KernelTask(), OomTasks()),
    machine=True,
    title="kernel log: OOM kills, hung tasks, Xid, amdgpu and other GPU drivers, storage, links, PCIe, machine checks",
    versions="Linux 3.10 to 6.18, NVIDIA driver 470 to 580; dmesg with both stamps, `journalctl -k`, syslog",
    collect=("dmesg -T > $(hostname).dmesg", "journalctl -k --since '2 hours ago' > $(hostname).journal"),
)
