"""An object store on this machine: it serves samples and takes checkpoints, as slowly as it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Store:
    """silent: paths for which no answer ever comes. put_seconds: how long each upload takes, by its number."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.silent: set[str] = set()
        self.put_seconds: dict[int, float] = {}
        self.puts = 0
        self.sample = b""
        self.closed = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class _Answers(BaseHTTPRequestHandler):
    store: Store

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: its words are no evidence."""

    def do_GET(self) -> None:
        if self.path in self.store.silent:
            self.store.closed.wait()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.store.sample)))
        self.end_headers()
        self.wfile.write(self.store.sample)

    def do_PUT(self) -> None:
        self.store.puts += 1
        seconds = self.store.put_seconds.get(self.store.puts, 0.0)
        left = int(self.headers["Content-Length"])
        pieces = max(1, left // 65536)
        until = time.monotonic() + seconds
        while left > 0 and not self.store.closed.is_set():
            left -= len(self.rfile.read(min(left, 65536)))
            self.store.closed.wait(seconds / pieces)
        self.store.closed.wait(max(0.0, until - time.monotonic()))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serving() -> Iterator[Store]:
    class Answers(_Answers):
        """Of this store alone."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    Answers.store = store = Store(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        store.closed.set()
        server.shutdown()
        server.server_close()
