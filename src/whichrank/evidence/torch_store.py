"""How ranks find each other: TCPStore, rendezvous, the store based barrier, and what they print when it fails.

PyTorch 1.8 to 2.14 (torch/csrc/distributed/c10d/TCPStore.cpp, socket.cpp; torch/distributed/distributed_c10d.py).

>>> from whichrank.evidence.sample import facts
>>> few, = facts(READER, "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 4/8 clients joined.")
>>> few.rank, few["seconds"], few["joined"], few["expected"]
(0, 601, 4, 8)
>>> lost, = facts(READER, "[E1006 07:50:26.3 socket.cpp:1028] [c10d] The client socket has timed out after 600000ms while trying to connect to (nd-a, 41237).")
>>> lost.kind, lost["address"], lost["port"], lost["seconds"]
('connect_timeout', 'nd-a', 41237, 600)
"""

from __future__ import annotations

from typing import Any

from whichrank.evidence.scan import Line, Reader


def _seconds(values: dict[str, Any]) -> None:
    """Milliseconds to seconds, where the line says milliseconds."""
    if values.pop("unit", "s") == "ms" and isinstance(value := values.get("seconds"), int):
        values["seconds"] = value // 1000 if value % 1000 == 0 else value / 1000
    if isinstance(values.get("keys"), str):
        values["keys"] = [key.strip() for key in values["keys"].split(",")]


_HOST_PORT = r"\((?P<address>[^,()]+), (?P<port>\d+)\)"
_SOCKET = r"SocketImpl\([^)]*?(?:remote=\[?(?P<address>[\w.:-]+?)\]?:(?P<port>\d+))?\)"

LINES = (
    Line(
        "store_timeout",
        "clients joined",
        r"Timed out after (?P<seconds>\d+) ?seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+) clients joined",
    ),
    Line(
        "store_timeout",
        "wait timeout after",
        r"wait timeout after (?P<seconds>\d+)(?P<unit>ms|s), keys: (?P<keys>\S+(?:, \S+)*)",
        tidy=_seconds,
    ),
    # Rank 0 of a group makes the communicator's id; the others wait for it in the store.
    Line(
        "store_timeout",
        "is setting up NCCL communicator",
        r"\[(?P<group_rank>\d+)\] is setting up NCCL communicator and retriev\w+ ncclUniqueId from \[(?P<from_rank>\d+)\] via c10d key-value store by key '(?P<key>[^']*)', "
        r"but store->get\('[^']*'\) got error: (?P<error>.*?)(?:\. ?This may indicate.*|\s*)$",
    ),
    Line(
        "connect_timeout",
        "client socket has timed out after",
        rf"client socket has timed out after (?P<seconds>\d+)(?P<unit>ms|s) while trying to connect to {_HOST_PORT}",
        tidy=_seconds,
    ),
    Line(
        "connect_failed",
        "client socket has failed to connect",
        r"client socket has failed to connect to (?!any)\[?(?P<address>[\w.:-]+?)\]?:(?P<port>\d+) \(errno: -?\d+ - (?P<error>[^)]*)\)",
    ),
    Line(
        "connect_failed",
        "client socket has failed to connect to any",
        rf"client socket has failed to connect to any network address of {_HOST_PORT}",
    ),
    Line(
        "connect_failed",
        "failed to connect/validate",
        r"TCP client failed to connect/validate to host (?P<address>[\w.-]+):(?P<port>\d+) - (?!timed out|retrying)(?P<error>.*?)(?: \(try=|$)",
    ),
    Line(
        "connect_retry",
        "failed to connect/validate",
        r"TCP client failed to connect/validate to host (?P<address>[\w.-]+):(?P<port>\d+) - retrying \(try=(?P<attempt>\d+)",
    ),
    Line(
        "gai_warning",
        "gai error",
        rf"The (?P<family>IPv[46]) network addresses of {_HOST_PORT} cannot be retrieved \(gai error: (?P<code>-?\d+) - (?P<error>[^)]*)\)",
    ),
    Line("gai_warning", "gaierror", r"gaierror: \[Errno (?P<code>-?\d+)\] (?P<error>\S(?:.*\S)?)\s*$"),
    Line(
        "rendezvous_error",
        "Rendezvous",
        r"^(?!.*\b(?:import|except|raise)\b).*?(?<![\w\"/.])(?:[a-z_]\w*\.)*(?P<type>Rendezvous(?:Connection|Timeout|Closed|State|GracefulExit|Parameter)?Error)(?::? *(?P<text>[^\s\"'(,)][^\"]*?))?\s*$",
    ),
    Line(
        "store_barrier",
        "store based barrier",
        r"Waiting in store based barrier to initialize process group for (?:\d+ seconds )?rank: (?P<group_rank>\d+), key: (?P<key>\S+) \(world_size=(?P<world_size>\d+), (?:worker_count=(?P<worker_count>\d+), |num_workers_joined=(?P<joined>\d+), )?timeout=(?P<timeout>[\d:. day,s]+)",
    ),
    Line(
        "store_barrier",
        "store based barrier",
        r"Timed out (?:initializing process group in store based barrier|after \S+ in store based barrier)[^(]* rank:? (?P<group_rank>\d+), (?:for )?key: (?P<key>\S+) \(world_size=(?P<world_size>\d+), (?:worker_count=(?P<worker_count>\d+), |num_workers_joined=(?P<joined>\d+), )?timeout=(?P<timeout>[\d:. day,s]+)",
        {"timed_out": True},
    ),
    Line(
        "addr_in_use",
        ("ddress already in use", "EADDRINUSE"),
        r"^(?!.*NCCL (?:WARN|INFO))(?:.*?(?:bind to|listen on|port:?)\W*(?:\[[^\]]*\]|\?UNKNOWN\?|[\w.-]+(?=:))?:?\W{0,2}(?P<port>\d{2,5})\b)?.*?(?:[Aa]ddress already in use|EADDRINUSE)",
    ),
    Line(
        "store_lost",
        (" failed on SocketImpl", "failed to recv, got 0 bytes"),
        rf"\b(?P<call>\w{{1,40}}) failed on {_SOCKET}: (?P<error>\S(?:.*\S)?)\s*$",
    ),
    Line(
        "store_lost",
        "flag on TCPStore",
        r"Failed to (?P<call>check|set) the .*? flag on TCPStore.*?with error: (?P<error>(?:.*\S)?)\s*$",
    ),
    Line("store_lost", "failed to recv, got 0 bytes", r"(?P<error>failed to recv, got 0 bytes)"),
    Line(
        "store_lost",
        "the remote server shutdown or crash",
        r"(?P<error>Connection was likely closed\. Did the remote server shutdown or crash\?)",
    ),
)

READER = Reader(
    "torch_store",
    LINES,
    title="store, rendezvous and connection failures",
    versions="PyTorch 1.8 to 2.14",
    collect=("export TORCH_CPP_LOG_LEVEL=INFO",),
)
