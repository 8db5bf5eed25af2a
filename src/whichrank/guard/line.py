"""What goes between the ranks: messages of any length over gloo, point to point, each wait with its own limit."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

FRAME = 256  # bytes of a first message; what is longer follows in a second one
ROOM = FRAME - 8
TAG = 7411


class Line:
    """One end of a gloo group. `to`, `source`: indices in the group."""

    def __init__(self) -> None:
        self.gloo: Any = None

    def send(self, to: int, data: bytes, seconds: float) -> None:
        end = time.monotonic() + seconds
        for work in self.start_send(to, data):
            work.wait(left(end))

    def start_send(self, to: int, data: bytes) -> list[Any]:
        frame = bytearray(FRAME)
        struct.pack_into("<Q", frame, 0, len(data))
        frame[8 : 8 + min(len(data), ROOM)] = data[:ROOM]
        works = [self.gloo.send([_tensor(frame)], to, TAG)]
        if len(data) > ROOM:
            works.append(self.gloo.send([_tensor(bytearray(data[ROOM:]))], to, TAG))
        return works

    def start_receive(self, source: int) -> tuple[bytearray, Any]:
        frame = bytearray(FRAME)
        return frame, self.gloo.recv([_tensor(frame)], source, TAG)

    def finish_receive(self, source: int, begun: tuple[bytearray, Any], end: float) -> bytes:
        frame, work = begun
        work.wait(left(end))
        (size,) = struct.unpack_from("<Q", frame)
        if size <= ROOM:
            return bytes(frame[8 : 8 + size])
        rest = bytearray(size - ROOM)
        self.gloo.recv([_tensor(rest)], source, TAG).wait(left(end))
        return bytes(frame[8:]) + bytes(rest)

    def receive(self, source: int, seconds: float) -> bytes:
        return self.finish_receive(source, self.start_receive(source), time.monotonic() + seconds)


@contextmanager
def eagerly() -> Iterator[None]:
    """With connections that gloo makes when they are first needed, a send may wait for ever (torch 2.13)."""
    lazy = os.environ.pop("TORCH_GLOO_LAZY_INIT", None)
    try:
        yield
    finally:
        if lazy is not None:
            os.environ["TORCH_GLOO_LAZY_INIT"] = lazy


def left(end: float) -> timedelta:
    return timedelta(seconds=max(0.001, end - time.monotonic()))  # gloo takes zero for no limit


def _tensor(data: bytearray) -> Any:
    import torch

    return torch.frombuffer(data, dtype=torch.uint8)  # shares its memory


def cut(gloo: Any) -> None:
    """Close all connections of a gloo group. Its own abort() leaves pending calls alone (torch 2.13); what closes them
    is a receive that runs out of time, as gloo cannot go on after that."""
    import torch

    for other in range(gloo.size()):
        if other == gloo.rank():
            continue
        try:
            gloo.recv([torch.empty(1, dtype=torch.uint8, device="cpu")], other, TAG + 1).wait(timedelta(milliseconds=1))
        except RuntimeError as error:
            if "imed out" in str(error):  # and not one that was closed before
                return
