"""Words that the nodes of a job leave for each other in a folder that all of them see: `python -m whichrank.watch.folder DIR`.

The folder's storage may be the very thing that hangs, so a process of its own asks it; it is left behind when it gives no
answer. One JSON object a line in and out. A counter is a folder of empty files whose names are its numbers: making a file
that must not exist yet is the one thing that all storage does for one node only.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whichrank.watch.store import OVER, Silent

SECONDS = 4.0  # that an answer may take
TRIES = 10_000
LEFT = 60.0  # seconds without a word in which a run has ended: its speaker gives a sign of life every few seconds


class Folder:
    """As a Place, see store.py. The folder is made by the first node that comes."""

    def __init__(self, path: str, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        package = str(Path(__file__).parents[2])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])}
        env.pop("WHICHRANK_RUN", None)
        self.child = subprocess.Popen(
            (sys.executable, "-m", "whichrank.watch.folder", path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()) and None,
        )
        self.heard = b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.child.pid, signal.SIGKILL)
        for end in (self.child.stdin, self.child.stdout):
            with contextlib.suppress(OSError):
                end.close() if end else None
        self.child.poll()

    def add(self, key: str, more: int) -> int:
        return int(self._ask("add", key, more=more))

    def set(self, key: str, data: bytes) -> None:
        self._ask("set", key, data=_told(data))

    def claim(self, key: str, data: bytes) -> bytes:
        return base64.b64decode(self._ask("claim", key, data=_told(data)))

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        return {key: base64.b64decode(data) for key, data in self._ask("get", list(keys)).items()}

    def _ask(self, what: str, key: object, **more: object) -> Any:
        assert self.child.stdin is not None and self.child.stdout is not None
        until = time.monotonic() + self.seconds
        line = json.dumps({"do": what, "key": key, **more}).encode() + b"\n"
        to, back = self.child.stdin.fileno(), self.child.stdout.fileno()
        os.set_blocking(to, False)
        while line:
            if not select.select([], [to], [], max(0.0, until - time.monotonic()))[1]:
                raise Silent("the folder gives no answer")
            line = line[os.write(to, line) :]
        while b"\n" not in self.heard:
            if not select.select([back], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Silent("the folder gives no answer")
            data = os.read(back, 1 << 20)
            if not data:
                raise Silent("nobody asks the folder any more")
            self.heard += data
        answer, _, self.heard = self.heard.partition(b"\n")
        told = json.loads(answer)
        if "error" in told:
            raise Silent(str(told["error"]))
        return told["is"]


def _told(data: bytes) -> str:
    return base64.b64encode(data).decode()


# In the child


class Files:
    """Those of an earlier run of the same name are passed by: it has said that it is over, or nobody writes there any more."""

    def __init__(self, base: Path) -> None:
        base.parent.mkdir(0o700, parents=True, exist_ok=True)
        self.parts = 0
        self.base = base
        for number in range(1, TRIES):
            self.base.mkdir(0o700, exist_ok=True)
            if not self._left():
                break
            self.base = base.with_name(f"{base.name}.{number}")

    def _left(self) -> bool:
        names = [name for name in os.listdir(self.base) if not name.endswith(".part")]  # noqa: PTH208
        if OVER in names:
            return True
        probe = self._write(b"")  # by the clock of whoever keeps the files
        now = probe.stat().st_mtime
        probe.unlink()
        touched = []
        for name in names:
            with contextlib.suppress(OSError):
                touched.append((self.base / name).stat().st_mtime)
        return bool(touched) and now - max(touched) > LEFT

    def answer(self, asked: dict[str, Any]) -> Any:
        key = asked["key"]
        if asked["do"] == "add":
            return self.add(self._path(key), int(asked["more"]))
        if asked["do"] == "get":
            return {one: _told(data) for one in key if (data := self._read(self._path(one))) is not None}
        data = base64.b64decode(asked["data"])
        if asked["do"] == "claim":
            return self.claim(self._path(key), data)
        self._write(data).replace(self._path(key))
        return None

    def _path(self, key: str) -> Path:
        return self.base / key.replace("/", "-")

    @staticmethod
    def _read(path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, data: bytes) -> Path:
        self.parts += 1
        part = self.base / f".{os.uname().nodename}-{os.getpid()}-{self.parts}.part"
        part.write_bytes(data)
        return part

    def add(self, counter: Path, more: int) -> int:
        counter.mkdir(0o700, exist_ok=True)
        for _ in range(TRIES):
            now = max((int(name) for name in os.listdir(counter) if name.isdecimal()), default=0)  # noqa: PTH208
            if not more:
                return now
            with contextlib.suppress(FileExistsError):
                os.close(os.open(counter / str(now + more), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                return now + more
        raise OSError("too many at once")

    def claim(self, path: Path, data: bytes) -> str:
        part = self._write(data)
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
        part.unlink()
        return _told(path.read_bytes())


def main(base: Path) -> None:
    files: Files | None = None
    for line in sys.stdin.buffer:
        try:
            files = files or Files(base)
            told = {"is": files.answer(json.loads(line))}
        except (OSError, ValueError, KeyError, TypeError) as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
