"""The kernel's log from now on, as dmesg prints it."""

from __future__ import annotations

import os
import re
from types import TracebackType

RECORD = re.compile(rb"\d+,\d+,(\d+),[^;]*;([^\n]*)")


class KernelLog:
    """Empty where it may not be read."""

    def __enter__(self) -> KernelLog:
        try:
            self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.file, 0, os.SEEK_END)
        except OSError:
            self.file = -1
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self.file >= 0:
            os.close(self.file)

    def since(self) -> str:
        lines = []
        while self.file >= 0:
            try:
                record = RECORD.match(os.read(self.file, 8192))
            except BrokenPipeError:  # records were lost; the next read goes on behind them
                continue
            except OSError:
                break
            if record:
                seconds, rest = divmod(int(record[1]), 1_000_000)
                lines.append(f"[{seconds:5d}.{rest:06d}] {record[2].decode(errors='replace')}\n")
        return "".join(lines)
