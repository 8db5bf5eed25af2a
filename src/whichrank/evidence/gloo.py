"""What gloo reports: operations that timed out, peers that went away, meshes that did not connect.

gloo as bundled with PyTorch 1.8 to 2.14 (gloo/transport/tcp/pair.cc, unbound_buffer.cc, device.cc). A timeout names no
rank; an address is where the peer listened, and belongs to one rank only.

>>> from whichrank.evidence.sample import facts
>>> late, = facts(READER, "[rank1]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete")
>>> late.kind, late.rank, late["timeout_ms"], late["direction"], late["backend"]
('timeout', 1, 8000, 'recv', 'gloo')
>>> gone, = facts(READER, "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:31204. This may be caused by")
>>> gone.kind, gone["peer_host"], gone["peer_port"]
('peer_closed', '10.0.0.7', 31204)
>>> short, = facts(READER, "  what():  [enforce fail at ../gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2048 vs 1536. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?")
>>> short.kind, short["received"], short["expected"]
('size_mismatch', 2048, 1536)
"""

from __future__ import annotations

from whichrank.evidence.scan import Line, Reader

_GLOO = {"backend": "gloo"}
_PEER = r"\[(?P<peer_host>[^\]]+)\]:(?P<peer_port>\d+)"

LINES = (
    Line(
        "timeout",
        "Timed out waiting ",
        r"Timed out waiting (?P<timeout_ms>\d+)ms for (?P<direction>recv|send) operation to complete",
        _GLOO,
    ),
    Line("timeout", ("Read timeout [", "Write timeout ["), rf"\.cc:\d+\] (?P<call>Read|Write) timeout {_PEER}", _GLOO),
    # One operation timed out, and the pair of sockets was given up: every other operation on it says so.
    Line(
        "timeout",
        "Application timeout caused pair closure",
        r"Application timeout caused pair closure",
        {**_GLOO, "echo": True},
    ),
    # The loop of the transport throws it: the process ends with SIGABRT, and its dump is not written.
    Line(
        "size_mismatch",
        "op.preamble.length <= op.nbytes",
        r"op\.preamble\.length <= op\.nbytes\. (?P<received>\d+) vs (?P<expected>\d+)",
        _GLOO,
    ),
    Line("peer_closed", "onnection closed by peer", rf"Connection closed by peer {_PEER}", _GLOO),
    Line(
        "peer_closed",
        ("Read error [", "Write error [", "writev [", "read [", "ocket closed [", "ocket unexpectedly closed ["),
        rf"\.cc:\d+\] (?P<call>Read error|Write error|writev|read|Socket closed|Socket unexpectedly closed) {_PEER}(?:: (?P<error>[^.\n]*))?",
        _GLOO,
    ),
    Line(
        "connect_failed",
        "onnect timeout [",
        r"\.cc:\d+\] (?P<error>Connect timeout) \[(?P<address>[^\]]+)\]:(?P<port>\d+)",
        _GLOO,
    ),
    Line(
        "connect_failed",
        "connect [",
        r"\.cc:\d+\] connect \[(?P<address>[^\]]+)\]:(?P<port>\d+): (?P<error>[^.\n]+)",
        _GLOO,
    ),
    Line(
        "connect_failed",
        "connectFullMesh failed",
        r"[Gg]loo connectFullMesh failed with (?:\[[^\]]*\] ?)?(?P<error>.*?)(?:, remote=\[?(?P<address>[\w.:-]+?)\]?:(?P<port>\d+).*)?\s*$",
        _GLOO,
    ),
    Line(
        "connect_failed",
        "SO_ERROR: ",
        r"^(?!.*connectFullMesh).*?(?:timed out connecting: )?SO_ERROR: (?P<error>[^,]{1,200}?)(?:, remote=\[?(?P<address>[\w.:-]+?)\]?:(?P<port>\d+).*)?\s*$",
        _GLOO,
    ),
    Line(
        "no_interface",
        "Unable to find address for",
        r"Unable to find (?:address|interface) for:? (?P<wanted>\S+)",
        _GLOO,
    ),
    Line(
        "no_interface",
        "Unable to resolve hostname to a",
        r"Unable to resolve hostname to a \(?local\)? ?address",
        _GLOO,
    ),
)

READER = Reader(
    "gloo",
    LINES,
    title="gloo timeouts and lost peers",
    versions="PyTorch 1.8 to 2.14",
    collect=("torchrun --log-dir LOGS --redirects 3 …",),
)
