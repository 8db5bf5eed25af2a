"""Rank 0 at work, and those who wait for it: signs of life and progress by the store, the end by the guards' gloo."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

from . import circle, clerk
from .circle import Circle
from .errors import GuardError
from .line import left
from .meeting import opened
from .place import leave, phase

BEAT = 1.0  # seconds between two signs
AT_ONCE = 5.0  # seconds in which those that wait already are told of a failure


class Work:
    """Rank 0 at work: the clerk says that it lives and how far it is."""

    def __init__(self, around: Circle, call: str) -> None:
        self.note = ""
        self._circle = around
        self._call = around.busy = call
        self._begun = time.monotonic()
        self._beats = 0
        self._errand = clerk.every(BEAT, self._beat)

    def _beat(self) -> None:
        self._beats += 1
        said = {"calls": self._circle.calls, "beat": self._beats, "note": self.note[:200]}
        said["seconds"] = round(time.monotonic() - self._begun)
        self._circle.store.set("beat", json.dumps(said))

    def done(self, result: bytes, seconds: float) -> None:
        """All others get it; who is not there yet is waited for."""
        self._send(b"+" + result, seconds)

    def failed(self, error: BaseException) -> None:
        said = self._circle.tell_failure(error)
        try:
            self._send(b"!" + json.dumps(said).encode(), AT_ONCE)
        except GuardError:  # who comes later finds it in the store
            pass

    def _send(self, answer: bytes, seconds: float) -> None:
        around = self._circle
        self._errand.stop()
        around.busy = ""
        around.begin_wait(self._call)
        end = time.monotonic() + seconds
        try:
            works = [work for index in range(1, len(around.ranks)) for work in around.start_send(index, answer)]
            for work in works:
                work.wait(left(end))
        except RuntimeError as error:
            raise around.failed(error, seconds) from None
        finally:
            if not around.broken:
                around.end_wait()


class _Watch:
    """Those who wait: the clerk listens for rank 0's signs, passes them on, and ends the wait when there are none."""

    def __init__(self, around: Circle, call: str, silence: float) -> None:
        self._circle = around
        self._call = call
        self._silence = silence
        self._last: Any = None
        self._heard = time.monotonic()
        self._told = circle.TELL
        self.silent = False
        self._errand = clerk.every(BEAT, self._listen)
        self._over = threading.Event()
        threading.Thread(target=self._limit, name="whichrank-guard-watch", daemon=True).start()

    def stop(self) -> None:
        self._errand.stop()
        self._over.set()

    def _listen(self) -> None:
        around = self._circle
        said = json.loads(around.store.get("beat")) if around.store.check(["beat"]) else {}
        if said.get("calls") != around.calls or said["beat"] == self._last:
            return
        self._last, self._heard = said["beat"], time.monotonic()
        around.tell_at(math.inf)
        if around.me == 1 and said["seconds"] >= self._told:
            self._told = said["seconds"] + circle.TELL
            note = f": {said['note']}" if said["note"] else ""
            text = f"rank {around.ranks[0]} is at work in {self._call} for {said['seconds']} s{note}"
            around.say(f"{text}; {len(around.ranks) - 1} wait for it")

    def _limit(self) -> None:
        """Not the clerk's: rank 0 may be the one that keeps the store, and the clerk then waits for its answer."""
        while not self._over.wait(0.5):
            if time.monotonic() - self._heard > self._silence:
                self.silent = True
                self._circle.close(f"no sign of life of rank {self._circle.ranks[0]} in {self._call}")
                return


def wait(around: Circle, call: str, limit: float, silence: float) -> bytes:
    """Until rank 0 has done its work: what it sent."""
    around.begin_wait(call)
    watch = _Watch(around, call, silence)
    entered = phase("waits for rank 0")
    try:
        return opened(around.receive(0, limit))
    except GuardError:
        raise
    except RuntimeError as error:
        if watch.silent:
            text = f"{call}: no sign of life of rank {around.ranks[0]} for {silence:.0f} s: its host is gone, it is"
            raise GuardError(text + " stopped, or holds the GIL all the time (then: silence=…).") from None
        raise around.failed(error, limit) from None
    except BaseException as error:  # Ctrl-C, or SIGTERM made an exception
        around.close(f"{type(error).__name__} in {call}")
        raise
    finally:
        leave(entered)
        watch.stop()
        if not around.broken:
            around.end_wait()
