"""Where the ranks meet: a small store of keys and values that rank 0 serves on MASTER_ADDR:MASTER_PORT.

Standard library only. Where the launcher serves a store on that port already (torchrun), that one is used
(agent_store.py). Values are bytes, never run or unpickled; a get waits on the server, so that nobody polls.

Frames: an operation, the lengths of key and value, both (">BII"); the answer's length and the answer (">I"). A
connection begins with a line that names this protocol and the run, so that a stranger on the port is told apart.
"""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

HELLO = "whichrank-preflight 1 "
FRAME, LENGTH, NOTHING = struct.Struct(">BII"), struct.Struct(">I"), 0xFFFFFFFF
PUT, GET, ADD = 1, 2, 3
LARGEST = 8 << 20  # bytes of a value
TRIED = 4  # ports from MASTER_PORT on: the first may belong to somebody else


class Store(Protocol):
    """Keys and values that all ranks share. Any call may raise OSError: the store is gone."""

    def put(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, seconds: float) -> bytes | None:
        """The value once it is there; None if it does not come in time."""

    def add(self, key: str) -> int:
        """Counts: 1 for the first that asks, 2 for the second …"""

    def close(self) -> None: ...


class Unreachable(Exception):
    """Nobody to meet. `kind`: name (it does not resolve), refused, silent, unreachable, stranger."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class Server:
    """Serves the store from a thread of its own until `close`.

    Raises:
        OSError: none of the ports is free.
    """

    def __init__(self, port: int, run: str) -> None:
        self.run = run
        self.values: dict[str, bytes] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.changed: dict[str, asyncio.Event] = {}
        self.socket = self._bound(port)
        self.port: int = self.socket.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _bound(self, port: int) -> socket.socket:
        problem = OSError("no port")
        for one in range(port, port + TRIED):
            try:
                return listening(one)
            except OSError as error:
                problem = error
        raise problem

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        serving = asyncio.start_server(self._client, sock=self.socket, limit=LARGEST)
        with suppress(RuntimeError):  # stopped
            self.loop.run_until_complete(serving)
            self.loop.run_forever()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(
            OSError,
            asyncio.IncompleteReadError,
            ValueError,
            asyncio.LimitOverrunError,
            asyncio.CancelledError,
            asyncio.TimeoutError,
        ):
            hello = (await asyncio.wait_for(reader.readuntil(b"\n"), 20)).decode("utf-8", "replace").strip()
            writer.write(f"{HELLO}{self.run}\n".encode())
            while hello == f"{HELLO}{self.run}".strip():
                operation, key_size, size = FRAME.unpack(await reader.readexactly(FRAME.size))
                if max(key_size, size) > LARGEST:
                    break
                key = (await reader.readexactly(key_size)).decode("utf-8", "replace")
                answer = await self._answer(operation, key, await reader.readexactly(size))
                writer.write(LENGTH.pack(NOTHING) if answer is None else LENGTH.pack(len(answer)) + answer)
                await writer.drain()
        writer.close()

    async def _answer(self, operation: int, key: str, value: bytes) -> bytes | None:
        if operation == PUT:
            self.values[key] = value
            if event := self.changed.pop(key, None):
                event.set()
            return b""
        if operation == ADD:
            self.counts[key] += 1
            return str(self.counts[key]).encode()
        if key not in self.values:
            event = self.changed.setdefault(key, asyncio.Event())
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(event.wait(), float(value))
        return self.values.get(key)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1)


def listening(port: int, backlog: int = 4096) -> socket.socket:
    """On all addresses, of both families where there are both."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    return socket.create_server(("", port), backlog=backlog)


class Client:
    """One connection to the server; calls of several threads follow one another."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.lock = threading.Lock()

    def put(self, key: str, value: bytes) -> None:
        self._call(PUT, key, value, 20)

    def get(self, key: str, seconds: float) -> bytes | None:
        return self._call(GET, key, f"{max(0.0, seconds):.3f}".encode(), seconds + 10)

    def add(self, key: str) -> int:
        return int(self._call(ADD, key, b"", 20) or b"0")

    def _call(self, operation: int, key: str, value: bytes, limit: float) -> bytes | None:
        name = key.encode()
        with self.lock:
            self.socket.settimeout(limit)
            self.socket.sendall(FRAME.pack(operation, len(name), len(value)) + name + value)
            (size,) = LENGTH.unpack(received(self.socket, LENGTH.size))
            return None if size == NOTHING else received(self.socket, size)

    def close(self) -> None:
        self.socket.close()


def received(connected: socket.socket, size: int) -> bytes:
    """Exactly so many bytes. Raises ConnectionError if the other end closes before, TimeoutError."""
    data = bytearray()
    while len(data) < size:
        part = connected.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the other end closed the connection")
        data += part
    return bytes(data)


def join(host: str, port: int, run: str, seconds: float, rest: float = 0.25) -> Client:
    """A client of the server that rank 0 has, or will have, at one of the ports.

    Raises:
        Unreachable: nobody answers there in time.
    """
    until = time.monotonic() + seconds
    last = Unreachable("silent", "no answer")
    while True:
        left = until - time.monotonic()
        try:
            addresses = resolved(host)
            if connected := _first(addresses, port, run, min(max(left, 0.1), 5.0)):
                return Client(connected)
        except Unreachable as problem:
            last = problem
        if left <= 0:
            raise last
        time.sleep(min(rest, max(0.0, until - time.monotonic())))


def resolved(host: str) -> list[str]:
    """Numeric addresses of a name. Raises Unreachable."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreachable("name", f"{host!r} does not resolve here: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _first(addresses: Sequence[str], port: int, run: str, seconds: float) -> socket.socket | None:
    """The first of several connections, tried at once, behind which is the server of this run."""
    problems: list[Unreachable] = []
    with selectors.DefaultSelector() as waiting:
        for address, one in ((address, one) for address in addresses for one in range(port, port + TRIED)):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            trying = socket.socket(family, socket.SOCK_STREAM)
            trying.setblocking(False)
            code = trying.connect_ex((address, one))
            if code in (0, errno.EINPROGRESS):
                waiting.register(trying, selectors.EVENT_WRITE, (address, one))
            else:
                trying.close()
                problems.append(_problem(code, address, one))
        until = time.monotonic() + seconds
        try:
            while waiting.get_map() and (left := until - time.monotonic()) > 0:
                for key, _ in waiting.select(left):
                    trying = key.fileobj  # type: ignore[assignment] # what was registered
                    waiting.unregister(trying)
                    try:
                        greet(trying, run, *key.data)
                        return trying
                    except Unreachable as problem:
                        problems.append(problem)
                        trying.close()
        finally:
            _close(key.fileobj for key in list(waiting.get_map().values()))
    if not problems:
        raise Unreachable("silent", f"no answer from {addresses[0]} on port {port}")
    raise min(problems, key=lambda problem: ("stranger", "unreachable", "refused").index(problem.kind))


def _close(sockets: Iterable[object]) -> None:
    for one in sockets:
        if isinstance(one, socket.socket):
            one.close()


def _problem(code: int, address: str, port: int) -> Unreachable:
    kind = "refused" if code == errno.ECONNREFUSED else "unreachable"
    return Unreachable(kind, f"{address} port {port}: {os.strerror(code)}")


def greet(connected: socket.socket, run: str, address: str, port: int) -> None:
    """Raises Unreachable if the connection failed, or somebody else answers."""
    if code := connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise _problem(code, address, port)
    connected.settimeout(5)
    wanted = f"{HELLO}{run}\n".encode()
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.sendall(wanted)
        answer = connected.recv(4096)
    except OSError as error:
        raise Unreachable("stranger", f"{address} port {port} is open, but no preflight answers: {error}") from error
    if not answer.startswith(wanted):
        raise Unreachable(
            "stranger", f"{address} port {port}: another program, or another run's preflight, answers there"
        )
