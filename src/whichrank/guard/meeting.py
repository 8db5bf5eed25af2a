"""The one way in which the ranks come together: all tell rank 0 of the circle, it decides, all hear the same.

Every meeting says what it is for. Ranks that came for different things learn so, all of them and at once, where a
collective would hang or mix up their data.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from . import failure
from .circle import Circle
from .errors import GuardError, RanksDiffer, named
from .line import left

SEPARATOR = b"\x1f"
MORE = 15.0  # seconds that the others wait longer than rank 0, which has more to say


def meet(
    circle: Circle, kind: str, call: str, data: bytes, decide: Callable[[list[bytes]], bytes], seconds: float
) -> bytes:
    """Give `data`, get what `decide` made of everybody's, in the order of the group's ranks.

    Raises RanksMissing after `seconds`, or at once if a process has ended; RanksDiffer if others came for another kind;
    whatever GuardError `decide` raises, on every rank.
    """
    circle.calls += 1
    circle.begin_wait(call)
    message = SEPARATOR.join((kind.encode(), call.encode(), data))
    try:
        if circle.me == 0:
            return _lead(circle, message, decide, seconds)
        end = time.monotonic() + seconds + MORE
        circle.send(0, message, end - time.monotonic())
        return opened(circle.receive(0, end - time.monotonic()))
    except GuardError:
        raise
    except RuntimeError as error:
        raise circle.failed(error, seconds) from None
    except BaseException as error:  # Ctrl-C, SIGTERM made an exception: the call is half done, and so is the circle
        circle.tell_failure(error)
        circle.close(f"{type(error).__name__} in {call}")
        raise
    finally:
        if not circle.broken:
            circle.end_wait()


def _lead(circle: Circle, mine: bytes, decide: Callable[[list[bytes]], bytes], seconds: float) -> bytes:
    end = time.monotonic() + seconds
    others = range(1, len(circle.ranks))
    begun = [circle.start_receive(index) for index in others]
    messages = [mine, *(circle.finish_receive(index, one, end) for index, one in zip(others, begun, strict=True))]
    try:
        split = [message.split(SEPARATOR, 2) for message in messages]
        _same_kind(circle, split)
        answer = b"+" + decide([data for _, _, data in split])
    except GuardError as error:
        answer = b"-" + sealed(error)
    end = time.monotonic() + MORE  # they are there
    for work in [work for index in others for work in circle.start_send(index, answer)]:
        work.wait(left(end))
    return opened(answer)


def _same_kind(circle: Circle, split: list[list[bytes]]) -> None:
    kinds: dict[bytes, list[int]] = {}
    for index, (kind, _, _) in enumerate(split):
        kinds.setdefault(kind, []).append(index)
    if len(kinds) > 1:
        lines = ["the ranks came for different things, so they took different ways before:"]
        for members in kinds.values():
            ranks = [circle.ranks[index] for index in members]
            lines.append(f"  {named(ranks)} in {split[members[0]][1].decode()}")
        few = min(kinds.values(), key=len)
        lines.append(
            "Next: find the condition between the last common call and these lines that is not the same on all."
        )
        raise RanksDiffer("\n".join(lines), tuple(circle.ranks[index] for index in few))


def sealed(error: GuardError) -> bytes:
    said = {"kind": type(error).__name__, "text": str(error), "ranks": list(getattr(error, "ranks", ()))}
    return json.dumps(said).encode()


def opened(answer: bytes) -> bytes:
    """What the first byte says: an answer, an error for all, the failure of one."""
    if answer[:1] == b"+":
        return answer[1:]
    said = json.loads(answer[1:])
    if answer[:1] == b"!":
        raise failure.peer_failed(said)
    if said["kind"] == RanksDiffer.__name__:
        raise RanksDiffer(said["text"], tuple(said["ranks"]))
    raise GuardError(said["text"])
