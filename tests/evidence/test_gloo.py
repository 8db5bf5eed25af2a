"""gloo's transport errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors

PAIR = "[../third_party/gloo/gloo/transport/tcp/pair.cc:553] "
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("[rank1]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete", "timeout", {"timeout_ms": 8000, "direction": "recv"}),
    ("[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 1800000ms for send operation to complete", "timeout", {"timeout_ms": 1800000, "direction": "send"}),
    (f"[rank1]: RuntimeError: {PAIR}Read timeout [10.0.0.7]:31204", "timeout", {"peer_host": "10.0.0.7"}),
    (f"[rank1]: RuntimeError: {PAIR}Application timeout caused pair closure", "timeout", {"echo": True}),
    (f"[rank1]: RuntimeError: {PAIR}Connection closed by peer [10.0.0.7]:31204. This may be caused by a failure", "peer_closed", {"peer_host": "10.0.0.7", "peer_port": 31204}),
    (f"[rank1]: RuntimeError: {PAIR}Connection closed by peer [fe80::1]:31204", "peer_closed", {"peer_host": "fe80::1", "peer_port": 31204}),
    (f"[rank1]: RuntimeError: {PAIR}Read error [10.0.0.7]:31204: Connection reset by peer", "peer_closed", {"peer_port": 31204, "error": "Connection reset by peer"}),
    (f"[rank1]: RuntimeError: {PAIR}writev [10.0.0.7]:31204: Broken pipe", "peer_closed", {"peer_port": 31204, "error": "Broken pipe"}),
    (f"[rank1]: RuntimeError: {PAIR}Socket closed [10.0.0.7]:31204", "peer_closed", {"peer_port": 31204}),
    (f"[rank1]: RuntimeError: {PAIR}connect [127.0.1.1]:34567: Connection refused", "connect_failed", {"address": "127.0.1.1", "port": 34567, "error": "Connection refused"}),
    (f"[rank1]: RuntimeError: {PAIR}Connect timeout [10.0.0.7]:31204", "connect_failed", {"address": "10.0.0.7", "port": 31204}),
    ("[rank1]: RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", "connect_failed", {"error": "no error"}),
    ("[rank1]: RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] timed out connecting: SO_ERROR: Connection refused, remote=[10.0.0.2]:1234", "connect_failed", {"address": "10.0.0.2", "port": 1234}),
    ("[rank1]:   what():  [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 512 vs 384. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?", "size_mismatch", {"received": 512, "expected": 384}),
    ("[rank1]:   what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4. ", "size_mismatch", {"received": 8, "expected": 4}),
    ("[rank1]: RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth9", "no_interface", {"wanted": "eth9"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "values"), CASES)
def test_line(line: str, kind: str, values: dict[str, Any]) -> None:
    fact = one(line, kind)
    assert fact.rank == 1
    assert {name: fact[name] for name in values} == values
    assert kind == "no_interface" or fact["backend"] == "gloo"


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = [case[0] for case in CASES]
    assert survivors(lines, seed) >= {repr(essence(fact)) for fact in facts_of("\n".join(lines))}
