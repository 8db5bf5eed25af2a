"""The store that torchrun's agent serves on MASTER_PORT, spoken to without importing torch.

The protocol of torch.distributed.TCPStore (torch/csrc/distributed/c10d/TCPStore.cpp and TCPStoreBackend.hpp, PyTorch
2.2 to 2.13; tried on 2.13): a byte for the query, strings with a length of 64 bits, numbers in the machine's order.
Used: VALIDATE 0, SET 1, GET 3, ADD 4, CHECK 5 (answers 0 where all keys are there).
"""

from __future__ import annotations

import socket
import struct
import threading
import time

from whichrank.preflight.meeting import Unreachable, received, resolved

VALIDATE, SET, GET, ADD, CHECK = 0, 1, 3, 4, 5
MAGIC = 0x3C85F7CE
LENGTH = struct.Struct("=Q")
FIRST, LONGEST = 0.01, 0.25  # seconds between two looks at a key: it grows, for the sake of large jobs
LARGEST = 64 << 20


class AgentStore:
    """A `Store`, under a prefix of our own: what torchrun keeps there is left alone."""

    def __init__(self, connected: socket.socket, prefix: str) -> None:
        self.socket, self.prefix = connected, prefix
        self.lock = threading.Lock()

    def put(self, key: str, value: bytes) -> None:
        with self.lock:
            self._send(SET, self._name(key) + LENGTH.pack(len(value)) + value)

    def get(self, key: str, seconds: float) -> bytes | None:
        until, rest = time.monotonic() + seconds, FIRST
        while not self._there(key):
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(rest, left))
            rest = min(2 * rest, LONGEST)
        with self.lock:
            self._send(GET, self._name(key))
            (size,) = LENGTH.unpack(received(self.socket, LENGTH.size))
            if size > LARGEST:
                raise ConnectionError("the store's answer makes no sense")
            return received(self.socket, size)

    def _there(self, key: str) -> bool:
        with self.lock:
            self._send(CHECK, LENGTH.pack(1) + self._name(key))
            return received(self.socket, 1) == b"\0"

    def add(self, key: str) -> int:
        with self.lock:
            self._send(ADD, self._name(key) + struct.pack("=q", 1))
            (count,) = struct.unpack("=q", received(self.socket, 8))
        return int(count)

    def close(self) -> None:
        self.socket.close()

    def _name(self, key: str) -> bytes:
        name = f"/{self.prefix}/{key}".encode()
        return LENGTH.pack(len(name)) + name

    def _send(self, query: int, body: bytes) -> None:
        self.socket.sendall(bytes([query]) + body)


def join(host: str, port: int, prefix: str, seconds: float) -> AgentStore:
    """Raises Unreachable: no such store answers there in time."""
    problem = "no answer"
    until = time.monotonic() + seconds
    for address in resolved(host):
        try:
            connected = socket.create_connection((address, port), max(1.0, until - time.monotonic()))
            connected.settimeout(10)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.sendall(struct.pack("=BI", VALIDATE, MAGIC))
            store = AgentStore(connected, prefix)
            store.add("came in")
            return store
        except (OSError, struct.error) as error:
            problem = f"{address} port {port}: {error}"
    raise Unreachable("silent", f"torchrun's own store: {problem}")
