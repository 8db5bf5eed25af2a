"""torchelastic's error file: the JSON in which a process leaves its exception for torchrun.

It is logged by the error handler, on one line or many, or is a file of its own (error.json). It repeats what the
process itself printed: an `echo`.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> reader = Reader("error_file", (), (ErrorFile(),))
>>> error, = facts(reader, r'{"message": {"message": "ValueError: bad batch", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\n  File \\"/w/train.py\\", line 3, in main\\n", "timestamp": "1655089800"}}}')
>>> error["type"], error["message"], error["frames"], error.at
('ValueError', 'bad batch', ['/w/train.py:3 main'], 1655089800.0)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from whichrank.evidence.scan import Row, State
from whichrank.facts import Fact

PATIENCE = 30  # lines of others that may stand between the lines of a block
GLOG = re.compile(r"^\s*[IWEFC]\d{3,4} [\d:.]+ +(?P<pid>\d+) [^\]]*\] ?")


class ErrorFile:
    """The JSON that the error handler logs, on one line or many: it repeats the exception of its own process."""

    anchors = ("error_handler:{", "error_handler.py", '"py_callstack"')

    def start(self, row: Row) -> State | None:
        opening = re.search(r"(?:error_handler(?::|\.py:\d+\] ?)|^\s*)(\{.*)$", row.text)
        return Reply(row, opening[1]) if opening else None


class Reply:
    def __init__(self, row: Row, text: str) -> None:
        self.row = row
        self.text = text
        self.patience = PATIENCE

    def take(self, row: Row) -> bool | None:
        if self._reply() is not None:
            return False
        text = GLOG.sub("", row.text).strip()
        if not re.match(r'"\w+": |[}\]]+,?$', text) or len(self.text) > 100_000:
            self.patience -= 1
            return None if self.patience > 0 else False
        self.text += text
        self.patience = PATIENCE
        return True

    def _reply(self) -> dict[str, Any] | None:
        try:
            found = msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def facts(self) -> Iterable[Fact]:
        found = (self._reply() or {}).get("message")
        message, stack, at = found, "", None
        if isinstance(found, dict):
            extra = found.get("extraInfo")
            message = found.get("message")
            if isinstance(extra, dict):
                stack, at = str(extra.get("py_callstack") or ""), extra.get("timestamp")
        if not isinstance(message, str) or not (
            match := re.match(r"(?P<type>[A-Za-z_][\w.]*)(?:\((?P<quoted>.*)\)$|: ?(?P<text>.*))", message, re.S)
        ):
            return
        frames = [
            f"{file}:{line} {func}" for file, line, func in re.findall(r'File "([^"]+)", line (\d+), in (\S+)', stack)
        ]
        text = (match["text"] or match["quoted"] or "").strip("'\"").split("\n")[0]
        at_ns = int(at) * 1_000_000_000 if isinstance(at, (str, int)) and re.fullmatch(r"\d{1,12}", str(at)) else None
        values = {"type": match["type"], "message": text, "frames": frames, "echo": True}
        yield Fact(
            "exception",
            self.row.spot(),
            at_ns or self.row.at_ns,
            "wall" if at_ns else self.row.clock,
            self.row.who,
            None,
            None,
            values,
        )
