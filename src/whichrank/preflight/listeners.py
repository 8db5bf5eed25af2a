"""What each rank opens for the others: listeners on ephemeral ports, as NCCL and gloo open them, and what they answer.

A connection begins with the listener's "whichrank" and its rank, so that a stranger, or the own loopback, is told from
the rank that was meant. Then the caller sends one letter:
  E  as many bytes as announced come back (does a large packet get through?)
  P  each byte comes back (round trips)
  C  the clock, seconds since 1970
  S  everything is swallowed for a time; then the bytes and seconds counted (bandwidth)
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

from whichrank.preflight.meeting import listening, received

GREETING = struct.Struct(">9sI")
WORD = b"whichrank"
SIZE, CLOCK, SINK, COUNTED = struct.Struct(">I"), struct.Struct(">d"), struct.Struct(">d"), struct.Struct(">Qd")
WARM = 0.1  # seconds of a stream that do not count: the window of TCP grows
MOST = 1 << 20
LONGEST = 30.0  # seconds of a stream


class Listeners:
    """Open until `close`."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank = rank
        self.sockets = [listening(0) for _ in range(count)]
        self.ports = [one.getsockname()[1] for one in self.sockets]
        for one in self.sockets:
            threading.Thread(target=self._accept, args=(one,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        with connected, suppress(OSError, struct.error, ConnectionError):
            connected.settimeout(15)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.sendall(GREETING.pack(WORD, self.rank))
            while serve := SERVED.get(connected.recv(1)):
                serve(connected)

    def close(self) -> None:
        for one in self.sockets:
            one.close()


def _echo(connected: socket.socket) -> None:
    (size,) = SIZE.unpack(received(connected, SIZE.size))
    connected.sendall(received(connected, min(size, MOST)))


def _ping(connected: socket.socket) -> None:
    (count,) = SIZE.unpack(received(connected, SIZE.size))
    for _ in range(min(count, 10_000)):
        connected.sendall(received(connected, 1))


def _clock(connected: socket.socket) -> None:
    connected.sendall(CLOCK.pack(time.time()))


def _sink(connected: socket.socket) -> None:
    (seconds,) = SINK.unpack(received(connected, SINK.size))
    seconds = min(max(0.0, seconds), LONGEST)  # also for nan: whoever asks is not known
    room = bytearray(1 << 20)
    begin, until = None, time.monotonic() + seconds
    count = 0
    connected.settimeout(0.2)
    while (now := time.monotonic()) < until:
        try:
            got = connected.recv_into(room)
        except TimeoutError:
            continue
        if not got:
            break
        if begin is not None:
            count += got
        elif now > until - seconds + WARM:
            begin = now
    connected.settimeout(5)
    connected.sendall(COUNTED.pack(count, time.monotonic() - begin if begin is not None else seconds - WARM))


SERVED = {b"E": _echo, b"P": _ping, b"C": _clock, b"S": _sink}


def connect(address: str, port: int, rank: int, seconds: float) -> socket.socket:
    """A connection to a rank's listener.

    Raises:
        OSError: as connect does; TimeoutError: no answer.
        ConnectionError: somebody else answered.
    """
    connected = socket.create_connection((address, port), seconds)
    try:
        connected.settimeout(seconds)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        word, who = GREETING.unpack(received(connected, GREETING.size))
        if word != WORD or who != rank:
            raise ConnectionAbortedError(f"another program answered at {address} port {port}")
    except BaseException:
        connected.close()
        raise
    return connected


def echoed(connected: socket.socket, size: int, seconds: float) -> None:
    """Raises TimeoutError: what is larger than one packet does not come back."""
    connected.settimeout(seconds)
    connected.sendall(b"E" + SIZE.pack(size))
    sender = threading.Thread(target=_send, args=(connected, size), daemon=True)
    sender.start()
    received(connected, size)


def _send(connected: socket.socket, size: int) -> None:
    with suppress(OSError):
        connected.sendall(bytes(size))


def round_trips(connected: socket.socket, count: int) -> list[float]:
    """Seconds of each."""
    connected.sendall(b"P" + SIZE.pack(count))
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        connected.sendall(b".")
        received(connected, 1)
        took.append(time.perf_counter() - begin)
    return took


def clock_ahead(connected: socket.socket) -> float:
    """Seconds by which the other clock is ahead of ours: the best of three askings, right to half a round trip."""
    best = (float("inf"), 0.0)
    for _ in range(3):
        begin = time.time()
        connected.sendall(b"C")
        (there,) = CLOCK.unpack(received(connected, CLOCK.size))
        end = time.time()
        best = min(best, (end - begin, there - (begin + end) / 2))
    return best[1]


def streamed(connected: socket.socket, seconds: float) -> float:
    """Bytes a second that arrived at the other end."""
    connected.settimeout(seconds + 5)
    connected.sendall(b"S" + SINK.pack(seconds))
    stop = threading.Event()
    sender = threading.Thread(target=_pour, args=(connected, stop, seconds), daemon=True)
    sender.start()
    count, took = COUNTED.unpack(received(connected, COUNTED.size))
    stop.set()
    return float(count / took) if took > 0 else 0.0


def _pour(connected: socket.socket, stop: threading.Event, seconds: float) -> None:
    block = bytes(1 << 18)
    until = time.monotonic() + seconds + 1
    with suppress(OSError):
        while not stop.is_set() and time.monotonic() < until:
            connected.sendall(block)
