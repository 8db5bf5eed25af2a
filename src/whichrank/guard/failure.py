"""Which rank failed first: written once, by compare-and-set, in the store that all ranks have."""

from __future__ import annotations

import json
import os
import socket
import traceback
from typing import Any

from .errors import PeerFailed

FRAMES = 40
SIZE = 16_000  # characters of a traceback


class First:
    """The one place of a run of the group where the first failure is kept."""

    def __init__(self, store: Any, size: int) -> None:
        self.store = store
        self.size = size
        self.known: dict[str, Any] | None = None
        self._said = False

    def publish(self, rank: int, error: BaseException) -> bool:
        """True if nobody was earlier. Within the store's time limit."""
        said = told(rank, error)
        kept = self.store.compare_set("first", "", json.dumps(said))
        self.known = json.loads(kept)
        return self.known == said

    def look(self) -> dict[str, Any] | None:
        if self.known is None and self.store.check(["first"]):
            self.known = json.loads(self.store.get("first"))
        return self.known

    def acknowledge(self) -> None:
        """This rank knows, or needs to know no more."""
        if not self._said:
            self._said = True
            self.store.add("acknowledged", 1)

    def all_know(self) -> bool:
        return int(self.store.add("acknowledged", 0)) >= self.size


active: First | None = None  # of the `process_group` that this process is in


def told(rank: int, error: BaseException) -> dict[str, Any]:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-FRAMES))
    return {"rank": rank, "host": socket.gethostname(), "pid": os.getpid(), "traceback": text[-SIZE:]}


def peer_failed(first: dict[str, Any], here: str = "") -> PeerFailed:
    """The error of a rank that leaves because another one failed; `here`: what it saw of it by itself."""
    rank, text = first["rank"], str(first["traceback"]).rstrip()
    indented = "\n".join("  " + line for line in text.splitlines())
    lines = [f"rank {rank} ({first['host']}, pid {first['pid']}) failed first. Mend this, the other ranks only follow:"]
    lines += ["", indented, ""]
    if here:
        lines.append(f"(seen here: {here})")
    return PeerFailed("\n".join(lines).rstrip() + "\n", rank, text)


def in_short(error: BaseException) -> str:
    """Type and first line of an error, for `here`."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
