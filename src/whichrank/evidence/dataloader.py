"""PyTorch's DataLoader: workers that died, batches that never came.

Formats: torch/utils/data/dataloader.py and torch/csrc/DataLoader.cpp, PyTorch 1.0 to 2.14.

>>> from whichrank.evidence.sample import facts
>>> facts(READER, "RuntimeError: DataLoader worker (pid 77391) is killed by signal: Killed. ")[0].values
{'worker_pid': 77391, 'signal': 'Killed'}
"""

from __future__ import annotations

from whichrank.evidence.scan import Line, Reader

LINES = (
    Line(
        "dl_worker_killed",
        "DataLoader worker (pid",
        r"DataLoader worker \(pid (?P<worker_pid>\d+)\) is killed by signal: (?P<signal>[\w ]+?)(?:\.|,|$)",
    ),
    Line(
        "dl_worker_killed",
        "exited unexpectedly",
        r"DataLoader worker \(pid\(?s?\)? (?P<worker_pid>\d+)[\d, ]*\) exited unexpectedly",
    ),
    Line("dl_timeout", "DataLoader timed out after", r"DataLoader timed out after (?P<seconds>\d+) seconds"),
    Line("dl_bus_error", "Unexpected bus error encountered in worker", r"Unexpected bus error encountered in worker"),
    Line(
        "dl_bus_error",
        "is killed by signal: Bus error",
        r"DataLoader worker \(pid (?P<worker_pid>\d+)\) is killed by signal: Bus error",
    ),
)

READER = Reader(
    "dataloader",
    LINES,
    title="DataLoader: killed workers, timeouts, bus errors",
    versions="PyTorch 1.0 to 2.14",
    collect=("torchrun --log-dir LOGS --redirects 3 …",),
)
