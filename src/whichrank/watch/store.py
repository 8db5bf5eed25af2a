"""A connection of our own to the job's TCPStore: what its nodes tell each other goes through it.

The store's own protocol, spoken by the watcher, not by a rank: nothing of it runs in the training, it goes on when ranks
are stopped or dead, every answer has a time limit, and a store that goes away prints nothing into the job's output (a
client of torch's waits for an answer without limit, and tells of a lost connection in twenty lines).

Protocol: PyTorch 2.4 to 2.13, torch/csrc/distributed/c10d/TCPStoreBackend.hpp, TCPStore.cpp and TCPStoreLibUvBackend.cpp.
A query is one byte, then its arguments: numbers as 8 bytes little-endian, texts with their length before them. The
first two queries are a magic number, and a ping that has to come back: a server that speaks otherwise is left alone.
Only servers with libuv (the default since 2.4) are spoken to: others wait for each client in turn.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - a host name needs it, and a thread may look for it at a bad moment
import os
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK = range(6)
MULTI_GET, PING = 10, 13
MAGIC = 0x3C85F7CE
OVER = "over"  # a key: who spoke for the job has ended
SECONDS = 3.0  # that an answer may take
UNSEEN = 256  # connections that are taken where the server is elsewhere
BATCH = 100  # keys in one question
MOST = 8 << 20  # bytes of a value: the server's own limit
_LENGTH = struct.Struct("<Q")


class Silent(OSError):
    """No answer in time, or none that can be understood."""


class Place(Protocol):
    """Where nodes leave words for each other. Everything raises OSError where there is no answer in time."""

    def add(self, key: str, more: int) -> int:
        """Adds to a counter, which begins with 0: what it is then."""

    def set(self, key: str, data: bytes) -> None: ...

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Of those that there are."""

    def claim(self, key: str, data: bytes) -> bytes:
        """Sets it if nobody has: what it is then."""

    def close(self) -> None: ...


class Store:
    """prefix: before all keys. Raises OSError where it cannot be reached or is no server that is understood."""

    def __init__(self, host: str, port: int, prefix: str, seconds: float = SECONDS) -> None:
        self.prefix, self.seconds = prefix, seconds
        self.there: set[str] = set()  # keys that are known to exist: nobody takes ours away
        self.socket = self._connected(host, port)
        try:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = os.urandom(4)
            self._send(struct.pack("<BI", VALIDATE, MAGIC) + bytes([PING]) + nonce)
            if self._receive(4) != nonce:
                raise Silent("not the protocol that is known here")
        except BaseException:
            self.close()
            raise

    def _connected(self, host: str, port: int) -> socket.socket:
        return socket.create_connection((host, port), self.seconds)

    def close(self) -> None:
        self.socket.close()

    def add(self, key: str, more: int) -> int:
        self._send(bytes([ADD]) + self._key(key) + struct.pack("<q", more))
        return int(struct.unpack("<q", self._receive(8))[0])

    def set(self, key: str, data: bytes) -> None:
        self._send(bytes([SET]) + self._key(key) + _text(data))

    def claim(self, key: str, data: bytes) -> bytes:
        self._send(bytes([COMPARE_SET]) + self._key(key) + _text(b"") + _text(data))
        return self._value()

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for at in range(0, len(keys), BATCH):
            found |= self._get(keys[at : at + BATCH])
        return found

    def _get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """To ask for a key that is not there would end the connection: first those are asked for that are not known."""
        unknown = [key for key in keys if key not in self.there]
        if unknown:
            self._send(b"".join(bytes([CHECK]) + _LENGTH.pack(1) + self._key(key) for key in unknown))
            self.there.update(key for key, no in zip(unknown, self._receive(len(unknown)), strict=True) if not no)
        known = [key for key in keys if key in self.there]
        if not known:
            return {}
        self._send(bytes([MULTI_GET]) + _LENGTH.pack(len(known)) + b"".join(map(self._key, known)))
        return {key: self._value() for key in known}

    def _key(self, key: str) -> bytes:
        return _text((self.prefix + key).encode())

    def _value(self) -> bytes:
        (length,) = _LENGTH.unpack(self._receive(8))
        if length > MOST:
            raise Silent("not the protocol that is known here")
        return self._receive(length)

    def _send(self, data: bytes) -> None:
        self.socket.settimeout(self.seconds)
        self.socket.sendall(data)

    def _receive(self, count: int) -> bytes:
        until = time.monotonic() + self.seconds
        data = bytearray()
        while len(data) < count:
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            part = self.socket.recv(min(count - len(data), 1 << 20))
            if not part:
                raise Silent("the store has closed the connection")
            data += part
        return bytes(data)


def _text(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def room(port: int, pids: Iterable[int], world: int) -> int | None:
    """For how many connections of ours the store has room, if one of these processes is its server: an eighth of its open
    files stay free, and three for each rank, counted what it has open now. proc(5), /proc/net/tcp and /proc/PID/limits.
    """
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:  # noqa: PTH123
            for line in lines:
                cells = line.split()
                if cells[3:4] == ["0A"] and cells[1].endswith(f":{port:04X}"):
                    listening.add(f"socket:[{cells[9]}]")
    for pid in pids:
        files = _open_files(pid)
        if listening & set(files):
            with contextlib.suppress(OSError, StopIteration), open(f"/proc/{pid}/limits") as lines:  # noqa: PTH123
                limit = next(line.split()[3] for line in lines if line.startswith("Max open files"))
                return max(0, int(limit) - int(limit) // 8 - max(len(files), 3 * world)) if limit.isdigit() else None
    return UNSEEN


def _open_files(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115
    return found


def address(told: Iterable[object]) -> tuple[str, int] | None:
    """Of what the ranks' recorders say of their store ("host:port"), the first that is sound.

    >>> address([None, "node-a:29500"]), address(["[::1]:80"]), address(["x"])
    (('node-a', 29500), ('::1', 80), None)
    """
    for one in told:
        host, _, port = one.rpartition(":") if isinstance(one, str) else ("", "", "")
        if host and port.isdecimal() and 0 < int(port) < 65536:
            return host.strip("[]"), int(port)
    return None
