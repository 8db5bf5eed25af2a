"""Where ranks meet: values arrive, waits end, strangers and silence are told apart."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from whichrank.preflight import agent_store, meeting


@pytest.fixture
def server() -> Iterator[meeting.Server]:
    with meeting.listening(0) as one:
        port = one.getsockname()[1]
    made = meeting.Server(port, "job 7")
    yield made
    made.close()


def joined(server: meeting.Server, run: str = "job 7") -> meeting.Client:
    return meeting.join("localhost", server.port, run, 5)


def test_a_value_arrives(server: meeting.Server) -> None:
    one, other = joined(server), joined(server)
    one.put("a", b"\0\xff" * 70_000)
    assert other.get("a", 0) == b"\0\xff" * 70_000


def test_a_get_waits_for_a_later_put(server: meeting.Server) -> None:
    one, other = joined(server), joined(server)
    threading.Timer(0.2, one.put, ("late", b"x")).start()
    assert other.get("late", 10) == b"x"


def test_a_get_ends_without_a_put(server: meeting.Server) -> None:
    begin = time.monotonic()
    assert joined(server).get("never", 0.3) is None
    assert time.monotonic() - begin < 5


def test_tickets_count(server: meeting.Server) -> None:
    one, other = joined(server), joined(server)
    assert [one.add("t"), other.add("t"), one.add("t"), other.add("u")] == [1, 2, 3, 1]


def test_another_run_is_a_stranger(server: meeting.Server) -> None:
    with pytest.raises(meeting.Unreachable) as told:
        meeting.join("localhost", server.port, "job 8", 0.5)
    assert told.value.kind == "stranger"


def test_another_program_is_a_stranger() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=lambda: other.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), daemon=True).start()
        with pytest.raises(meeting.Unreachable) as told:
            meeting.join("127.0.0.1", other.getsockname()[1], "", 0.5)
    assert told.value.kind == "stranger"


def test_nobody_listens() -> None:
    with meeting.listening(0) as one:
        port = one.getsockname()[1]
    with pytest.raises(meeting.Unreachable) as told:
        meeting.join("127.0.0.1", port, "", 0.3)
    assert told.value.kind == "refused"


def test_a_name_that_is_none() -> None:
    with pytest.raises(meeting.Unreachable) as told:
        meeting.join("no-such-host.invalid", 1, "", 0.1)
    assert told.value.kind == "name"


def test_the_next_port_where_the_first_is_taken() -> None:
    with meeting.listening(0) as taken:
        port = taken.getsockname()[1]
        made = meeting.Server(port, "")
        try:
            assert made.port != port
            client = meeting.join("localhost", port, "", 5)
            client.put("k", b"v")
            assert client.get("k", 0) == b"v"
        finally:
            made.close()


def test_a_store_that_goes_is_an_error(server: meeting.Server) -> None:
    client = joined(server)
    server.close()
    with pytest.raises(OSError):
        client.get("x", 5)


def test_the_agents_store_speaks_as_pytorch_does() -> None:
    """A server of the few queries that are used, as PyTorch 2.2 and newer answers them."""
    values: dict[bytes, bytes] = {}
    counts: dict[bytes, int] = {}

    def text(connected: socket.socket) -> bytes:
        (size,) = agent_store.LENGTH.unpack(meeting.received(connected, 8))
        return meeting.received(connected, size)

    def serve(listener: socket.socket) -> None:
        connected, _ = listener.accept()
        assert meeting.received(connected, 5) == b"\0" + (0x3C85F7CE).to_bytes(4, "little")
        while query := connected.recv(1):
            if query[0] == 1:
                key = text(connected)
                values[key] = text(connected)
            elif query[0] == 3:
                value = values[text(connected)]
                connected.sendall(agent_store.LENGTH.pack(len(value)) + value)
            elif query[0] == 4:
                key = text(connected)
                counts[key] = counts.get(key, 0) + int.from_bytes(meeting.received(connected, 8), "little")
                connected.sendall(counts[key].to_bytes(8, "little"))
            elif query[0] == 5:
                assert meeting.received(connected, 8) == agent_store.LENGTH.pack(1)
                connected.sendall(b"\0" if text(connected) in values else b"\1")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        store = agent_store.join("127.0.0.1", listener.getsockname()[1], "p", 5)
        assert store.get("k", 0.1) is None
        store.put("k", b"value")
        assert store.get("k", 1) == b"value"
        assert [store.add("n"), store.add("n")] == [1, 2]
    assert b"/p/k" in values
