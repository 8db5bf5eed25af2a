r"""NCCL and RCCL: what they print at INFO and WARN, and what PyTorch repeats of it after `Last error:`.

Formats: NCCL 2.14 to 2.30 (init.cc, bootstrap.cc, misc/socket.cc, misc/shmutils.cc, transport/net_ib, plugin/),
RCCL of the same age, PyTorch's NCCLUtils. A line is ``host:pid:tid [cudaDev] NCCL INFO text``, a warning
``host:pid:tid [cudaDev] file:line NCCL WARN text`` (2.30 adds the function); the device index is no rank, and the
rank in a line about a communicator is the rank in that communicator.

>>> from whichrank.evidence.sample import facts
>>> warning, = facts(READER, "node-7:71:95 [3] net_ib.cc:93 NCCL WARN NET/IB : Got completion from peer 10.6.4.1<5184> with error 12, opcode 0, len 0, vendor err 129")
>>> warning.kind, warning.who.host, warning.who.pid, warning["peer"], warning["status"], warning["vendor_err"]
('ib_error', 'node-7', 71, '10.6.4.1', 12, 129)
>>> line, = facts(READER, "node-7:71:95 [3] NCCL INFO comm 0x5f rank 7 nranks 8 cudaDev 3 nvmlDev 3 busId bb000 commId 0x9c - Init COMPLETE")
>>> line.kind, line["rank_in_comm"], line["nranks"], line["comm"], line["bus_id"], line["comm_id"]
('init_complete', 7, 8, '0x5f', 'bb000', '0x9c')
"""

from __future__ import annotations

from typing import Any

from whichrank.evidence.scan import Line, Reader

_COMM = (
    r"\bcomm (?P<comm>0x[0-9a-f]+|\(nil\)) rank (?P<rank_in_comm>\d+) n[rR]anks (?P<nranks>\d+)"
    r"(?: nNodes (?P<nnodes>\d+))?(?:.*? cudaDev (?P<cuda_dev>-?\d+))?(?: nvmlDev (?P<nvml_dev>-?\d+))?(?: busId (?P<bus_id>[0-9a-f]+))?"
    r"(?:.*? parent (?P<parent>0x[0-9a-f]+)(?: splitCount (?P<split>\d+))?(?: color (?P<color>-?\d+))?)?(?:.*? commId (?P<comm_id>0x[0-9a-f]+))?.*"
)
_PEER = r"(?P<address>[^\s<]+)<(?P<port>\d+)>"
_NOT_INFO = r"^(?!.*NCCL INFO)(?:.*[^\w])?"  # an optional call that failed is told at INFO level and means nothing
_ERRNO = r"(?:, error:? (?P<error>[^()]+?) ?(?:\(\d+\)|$))?"


def _retry(values: dict[str, Any]) -> None:
    """A group named `attempt` would be the job's attempt."""
    values["attempt"] = values.pop("retry")


INIT = (
    Line("init_start", "Init START", _COMM + r"- ?Init START"),
    # 2.19 and newer: the communicator has learnt of all its ranks, and is still in its init.
    Line(
        "init_start",
        "nNodes",
        r"\bcomm (?P<comm>0x[0-9a-f]+) rank (?P<rank_in_comm>\d+) nRanks (?P<nranks>\d+) nNodes (?P<nnodes>\d+) localRanks (?P<local_ranks>\d+) localRank (?P<local_rank_in_comm>\d+)",
    ),
    Line("init_complete", "Init COMPLETE", _COMM + r"- ?Init COMPLETE"),
    Line("abort", "Abort COMPLETE", _COMM + r"- Abort COMPLETE"),
    Line("destroy", "Destroy COMPLETE", _COMM + r"- Destroy COMPLETE"),
    Line(
        "nccl_version",
        "CCL version",
        r"\b[NR]CCL version ?:? ?(?P<version>\d+\.\d+(?:\.\d+)*)(?:(?:\+| compiled with )(?:cuda|hip|CUDA|ROCm) ?(?P<cuda>\d+(?:\.\d+)*))?",
    ),
    Line("nccl_version", "using nccl==", r"vLLM is using nccl==(?P<version>\d+(?:\.\d+)+)"),
    Line("config", "cudaDriverVersion", r"NCCL INFO (?P<name>cudaDriverVersion) (?P<value>\d+)"),
    Line(
        "env_set",
        " set ",
        r"CCL (?:INFO|WARN) (?P<name>(?:[NR]CCL|HSA|UCX|FI|OFI|GLOO|CUDA|HIP)_[A-Z0-9_]+) set (?:by environment )?to (?P<value>\S.*?)\.?\s*$",
    ),
)

TRANSPORT = (
    Line(
        "bootstrap_using",
        "Bootstrap",
        r"Bootstrap ?: Using (?:\[\d+\])?(?P<interface>[^:\s<]+):(?P<address>[^\s<]+)<\d+>",
    ),
    Line(
        "net_using",
        "NET/IB",
        r"NET/IB\w* ?: Using (?=.*?/(?P<transport>IB|RoCE)\b)(?P<devices>\[\d+\]\S+(?: \[\d+\]\S+)*)(?:.*?; OOB (?P<interface>[^:\s<]+):(?P<address>[^\s<]+))?",
    ),
    Line(
        "net_using",
        "NET/Socket",
        r"NET/(?P<transport>Socket) ?: Using (?P<devices>\[\d+\](?P<interface>[^:\s<]+):(?P<address>[^\s<]+)<\d+>(?: \[\d+\]\S+)*)",
    ),
    Line("net_using", "Using network", r"CCL INFO Using network (?P<transport>\S(?:.*\S)?)\s*$"),
    Line("net_using", "Assigned NET plugin", r"Assigned NET plugin (?P<transport>\S.*?) to comm"),
    Line("net_using", "NET/OFI Selected", r"NET/OFI Selected [Pp]rovider is (?P<transport>[^\s,(]+)"),
    Line("no_ib_device", "NET/IB", r"NET/IB\w* ?: No device found"),
    Line("no_ib_device", "libibverbs", r"Failed to open libibverbs\.so"),
    Line(
        "net_plugin",
        "NET/Plugin",
        r"NET/Plugin ?:.*(?:[Uu]sing internal|No plugin found|Could not find)",
        {"plugin": "none"},
    ),
    Line("net_plugin", "NET/Plugin", r"NET/Plugin ?: Loaded net plugin (?P<plugin>\S.*?)(?: \(v\d+\))?\s*$"),
    Line("net_plugin", "Plugin Path", r"CCL INFO Plugin Path : (?P<plugin>\S+)"),
    Line("net_plugin", "P2P plugin", r"CCL INFO P2P plugin (?:v\d+ )?(?P<plugin>\S+)"),
    Line("net_plugin", "loaded external", r"Successfully loaded external (?:network )?plugin (?P<plugin>\S+)"),
    Line("net_plugin", "NET/OFI", r"NET/OFI (?:Initializing|Using) (?P<plugin>aws-ofi-nccl \S+)"),
    Line(
        "speed_change",
        "speed change detected",
        r"NET/IB\w* ?: (?P<device>[\w.-]+:\d+) speed change detected: (?P<from_mbps>\d+) -> (?P<to_mbps>\d+|N/A)",
    ),
)

# An event is fatal if it stops traffic, whatever NCCL's own word for it: a port error is one, though 2.27 and newer call it non-fatal.
_EVENT = r"(?:(?P<device>[\w.-]{1,40}:\d+) )?Got (?:non-fatal )?async (?:error )?event ?: <?"
_HARM = r"(?:error|catastrophic|fatal|violation)"
INFINIBAND = (
    Line(
        "ib_error",
        "Got completion",
        r"NET/IB[\w/]* ?:.*?Got completion (?:from peer (?P<peer>[^\s<]+)(?:<(?P<peer_port>\d+)>)? )?with (?:error |status=(?:\w+\()?)(?P<status>\d+)"
        r"(?:.*?vendor[ _]err[ =](?P<vendor_err>\d+))?(?:.*?\bhca (?P<device>\S+))?",
    ),
    Line(
        "ib_error",
        "Got completion with error",
        r"NET/IB[\w/]* ?:.*?Got completion with error \(devIndex=\d+, wc->status=\(\w+\)(?P<status>\d+)",
    ),
    Line(
        "ib_async",
        "async fatal event",
        r"(?:(?P<device>[\w.-]{1,40}:\d+) )?async fatal event[^:]*: (?P<event>[^()<>\n]*[^()<>\s])",
        {"fatal": True},
    ),
    Line(
        "ib_async",
        ("async event", "async error event"),
        _EVENT + rf"(?P<event>[^()<>]*{_HARM}(?:[^()<>]*[^()<>\s])?)",
        {"fatal": True},
    ),
    Line(
        "ib_async",
        ("async event", "async error event"),
        _EVENT + rf"(?!.*{_HARM})(?P<event>[^()<>]*[^()<>\s])",
        {"fatal": False},
    ),
    Line(
        "ib_call_failed",
        "Call to ibv_",
        _NOT_INFO
        + r"Call to (?P<call>ibv_\w+)(?:\(\))? (?:failed(?: with(?: error)?)?|returned) (?P<code>-?\d+)(?: (?P<error>[^,\n]+))?",
    ),
    Line(
        "ib_call_failed",
        "Call to ibv_",
        _NOT_INFO
        + r"Call to (?P<call>ibv_\w+)(?:\(\))? failed with error (?P<error>\D+?)(?: errno (?P<code>\d+))?\s*$",
    ),
)

SOCKETS = (
    Line(
        "peer_closed",
        "losed by remote peer",
        r"(?:socketProgress|Net) ?: Connection closed by remote peer(?: (?P<peer_host>[^\s<]+)(?:<(?P<peer_port>\d+)>)?)?",
        {"backend": "nccl"},
    ),
    Line(
        "peer_closed",
        "losed by localRank",
        r"Connection closed by localRank (?P<peer_local_rank>\d+)",
        {"backend": "nccl"},
    ),
    Line(
        "peer_closed",
        "Could not receive type from localRank",
        r"Could not receive type from localRank (?P<peer_local_rank>\d+)",
        {"backend": "nccl"},
    ),
    Line(
        "peer_closed",
        ("Call to recv from", "Call to send to"),
        r"(?:socketProgress(?:Opt)?|Net ?): Call to (?:recv from|send to) (?P<peer_host>[^\s<]+)<(?P<peer_port>\d+)> failed : (?P<error>Connection reset by peer|Broken pipe)",
        {"backend": "nccl"},
    ),
    Line(
        "connect_failed",
        ("Call to recv from", "Call to send to"),
        rf"(?:socketProgress(?:Opt)?|Net ?): Call to (?:recv from|send to) {_PEER} failed : (?!Connection reset|Broken pipe)(?P<error>\S(?:.*\S)?)\s*$",
        {"established": True},
    ),
    Line(
        "connect_failed",
        "onnect to",
        rf"socket(?:Start|Poll)Connect:? (?:[Cc]onnect )?to {_PEER} failed(?: :| with error)? (?P<error>\S(?:.*\S)?)\s*$",
    ),
    Line(
        "connect_failed",
        "onnect to",
        rf"socketPollConnect: Connect to {_PEER} returned -?\d+\([^)]*\) errno \d+\((?P<error>[^)]*)\)",
    ),
    Line(
        "connect_failed",
        "exceeded",
        rf"onnect to {_PEER} returned (?P<error>[^,]+), exceeded (?:error |timeout )?retry count",
    ),
    Line(
        "connect_failed", "exceeded", r"socket(?:Start|Poll)Connect: (?P<error>exceeded (?:retries|timeouts) \(\d+\))"
    ),
    Line(
        "connect_retry",
        "retrying",
        rf"onnect to {_PEER} returned (?P<error>[^,]+), retrying \((?P<retry>\d+)/(?P<of>\d+)\)",
        tidy=_retry,
    ),
    Line("connect_retry", "Call to connect returned", r"Call to connect returned (?P<error>[^,]+), retrying"),
    Line(
        "no_interface",
        "interface found",
        r"(?:Bootstrap|NET/Socket|NET/IB) ?: (?i:no socket interface|no interface|no usable listening interface|no ip interface) found",
    ),
    Line(
        "no_interface",
        "No interface found in the same subnet",
        r"No interface found in the same subnet as remote address (?P<wanted>[^\s<]+)",
    ),
    Line(
        "no_interface",
        "no device found",
        r"no device found (?:matching|after excluding) (?P<wanted>(?:exactly )?\S+), verify NCCL_OOB_NET_IFNAME",
    ),
)

MISMATCH = (
    Line(
        "nccl_mismatch",
        "Mismatched NCCL version",
        r"Mismatched NCCL version detected : rank (?P<a_rank>\d+) version (?P<a>\d+) rank (?P<b_rank>\d+) version (?P<b>\d+)",
        {"what": "version"},
    ),
    Line(
        "nccl_mismatch",
        "version mismatch with remote peer",
        r"NCCL version mismatch with remote peer(?: (?P<peer>[^\s<]+)\S*)?(?: \(local: (?P<a>[^,]+), remote:? (?P<b>[^)]+)\))?",
        {"what": "version"},
    ),
    Line(
        "nccl_mismatch",
        "mismatch in info from procs",
        r"Bootstrap Root : mismatch in info from procs(?:, nranks (?P<a>\d+) vs (?P<b>\d+))?",
        {"what": "info"},
    ),
    Line(
        "nccl_mismatch",
        "mismatch in rank count",
        r"Bootstrap Root : mismatch in rank count from procs (?P<a>\d+) : (?P<b>\d+)",
        {"what": "info"},
    ),
    Line(
        "nccl_mismatch",
        "Message truncated",
        r"Message truncated : received (?P<a>[\d,]+) bytes instead of (?P<b>[\d,]+)",
        {"what": "message"},
    ),
    Line(
        "nccl_mismatch",
        "socketFinalizeAccept",
        r"socketFinalizeAccept(?: from (?P<peer>[^\s<]+)\S*)?: (?:wrong (?:socket )?(?:type|magic)|socket magic mismatch)",
        {"what": "info"},
    ),
    Line(
        "nccl_mismatch",
        "is different from child comm",
        r"parent comm netName (?P<a>.+?) is different from child comm netName (?P<b>\S+)",
        {"what": "plugin"},
    ),
    Line(
        "nccl_mismatch",
        "Detected mixed local",
        r"Detected mixed local (?:Net|CollNet) device counts across ranks \(min (?P<a>\d+), max (?P<b>\d+)\)",
        {"what": "devices"},
    ),
    Line(
        "nccl_mismatch",
        "incompatible",
        r"Attempted to connect incompatible devices: (?P<a>\S+) and (?P<b>\S+?)\.?(?: |$)",
        {"what": "link_layer"},
    ),
    Line(
        "nccl_mismatch",
        "incompatible",
        r"Remote (?P<b>\S+) device is incompatible with the local (?P<a>\S+?)\.?(?: |$)",
        {"what": "link_layer"},
    ),
    Line(
        "duplicate_rank", "has already checked in", r"rank (?P<a>\d+) of (?P<nranks>\d+) ranks has already checked in"
    ),
    Line(
        "duplicate_gpu",
        "Duplicate GPU detected",
        r"Duplicate GPU detected : rank (?P<a>\d+) and rank (?P<b>\d+) both on CUDA device (?P<bus_id>\w+)",
    ),
    Line("duplicate_gpu", "using the same GPU", r"Multiple Ranks are using the same GPU"),
)

SHM = (
    Line(
        "shm_error",
        "ailed to extend",
        rf"(?:Error|fallocate): [Ff]ailed to extend (?P<path>\S+) to (?P<size>\d+) bytes{_ERRNO}",
    ),
    Line(
        "shm_error",
        "shared memory segment",
        rf"Error while (?:creating|attaching to) shared memory segment (?P<path>\S+) \(size (?P<size>\d+)\){_ERRNO}",
    ),
    Line("shm_error", "ould not map", rf"Could not map (?P<path>\S+) size (?P<size>\d+){_ERRNO}"),
    Line(
        "shm_error",
        ("ailed to create shared memory file", "mkstemp: Failed to create"),
        r"ailed to create (?:shared memory file )?(?P<path>/\S+?), error:? (?P<error>[^()]+?) ?(?:\(\d+\)|$)",
    ),
)

# ncclGetErrorString's words, and the names that PyTorch explains in a line of their own.
WORDS = {
    "ncclUnhandledCudaError": "unhandled cuda error",
    "ncclSystemError": "unhandled system error",
    "ncclInternalError": "internal error",
    "ncclInvalidArgument": "invalid argument",
    "ncclInvalidUsage": "invalid usage",
    "ncclRemoteError": "remote process exited or there was a network error",
}
_HARDWARE = r"(?:ECC|NVLink|nvlink|contained|fallen off|unspecified hardware|hardware stack)"
ERRORS = (
    Line(
        "nccl_error",
        tuple(WORDS.values()),
        rf"^(?!.*(?:\braise \w+\(|following async exception|watchdog thread terminated)).*?NCCL (?:[Ee]rror|failure)\b.{{0,300}}?(?P<word>{'|'.join(WORDS.values())})(?:.{{0,80}}?NCCL version (?P<version>\d+(?:\.\d+)+))?(?:.*?Last error:(?:\\n|\s)*(?P<last_error>\S.*))?",
    ),
    *(Line("nccl_error", name, rf"\b{name}: ", {"word": word}) for name, word in WORDS.items()),
    Line(
        "cuda_error",
        "Cuda failure",
        rf"^(?!.*CCL INFO).*?Cuda failure (?:\d+ )?'(?P<message>[^']*{_HARDWARE}[^']*)'",
        {"hardware": True},
    ),
    Line(
        "cuda_error",
        "Cuda failure",
        rf"^(?!.*CCL INFO).*?Cuda failure (?:\d+ )?'(?![^']*{_HARDWARE})(?P<message>[^']+)'",
        {"hardware": False},
    ),
)

# How GPUs reach each other: what is off, and the first link of the first ring as a sample (each rank prints hundreds).
P2P = (
    Line("p2p_info", "P2P is disabled", r"(?P<text>P2P is disabled between (?:NVLINK )?connected GPUs \d+ and \d+)"),
    Line("p2p_info", "NCCL_P2P_DISABLE set", r"(?P<text>NCCL_P2P_DISABLE set (?:by environment )?to 1)"),
    Line("p2p_info", "Could not enable P2P", r"(?P<text>Could not enable P2P between dev \S+ and dev \S+)"),
    Line("p2p_info", "GPU Direct RDMA Disabled", r"(?P<text>(?:NET/\S+ : )?GPU Direct RDMA Disabled\b.*)"),
    Line("p2p_info", ("ACS", "IOMMU", "iommu"), r"CCL (?:WARN|INFO) (?!.*HINT)(?P<text>.*\b(?:ACS|IOMMU|iommu)\b.*)"),
    Line("p2p_info", "Channel", r"Channel 00(?:/\d+)? : (?P<text>0\[\w+\] -> 1\[\w+\] via (?:SHM|P2P)\S*)"),
)

READER = Reader(
    "nccl",
    lines=INIT + TRANSPORT + INFINIBAND + SOCKETS + MISMATCH + SHM + ERRORS + P2P,
    title="NCCL and RCCL at INFO and WARN: init, transport, interfaces, errors",
    versions="NCCL 2.14 to 2.30",
    collect=("export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=LOGS/nccl.%h.%p.log",),
)
