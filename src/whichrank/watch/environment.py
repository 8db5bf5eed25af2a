"""What a job finds in its environment: the recorder, and dumps of the Flight Recorder into the run directory.

Names and defaults: PyTorch 2.5 to 2.13, ProcessGroupNCCL.hpp, FlightRecorder.hpp and env.hpp. Both the old and the new
name of a setting are given, unless the user has set one of them: then that is theirs. Never set: what changes how fast
a job runs or how it fails (TORCH_NCCL_ENABLE_TIMING, TORCH_DISTRIBUTED_DEBUG, TORCH_NCCL_BLOCKING_WAIT).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

RUN = "WHICHRANK_RUN"
DUMPS = "nccl_trace_rank_"  # the prefix of a dump's name; PyTorch appends the rank
CALLS = "2000"  # that a rank's Flight Recorder remembers: PyTorch's own default since 2.7
INJECT = Path(__file__).parent.parent / "record" / "inject"


def for_job(
    given: Mapping[str, str], run: str, torch: tuple[int, int] | None = None, inject: Path | None = None
) -> dict[str, str]:
    """The environment of the job, from that of `whichrank run`. run: the run directory; torch: its version, if known.

    >>> made = for_job({"TORCH_NCCL_TRACE_BUFFER_SIZE": "20000", "PYTHONPATH": "/w"}, "/tmp/r", None, Path("/i"))
    >>> made["PYTHONPATH"], made["TORCH_FR_DUMP_TEMP_FILE"], made.get("TORCH_FR_BUFFER_SIZE")
    ('/i:/w', '/tmp/r/dumps/nccl_trace_rank_', None)
    >>> "TORCH_NCCL_TRACE_BUFFER_SIZE" in for_job({}, "/tmp/r", (2, 13))
    False
    """
    made = {name: value for name, value in given.items() if name != "WHICHRANK_RANK_PID"}
    made[RUN] = run
    made["PYTHONPATH"] = os.pathsep.join([str(inject or INJECT), *filter(None, [given.get("PYTHONPATH")])])
    size = ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"]
    for names, value in (
        # From 2.7 on calls are recorded by default, and newer ones warn of the old name.
        (size[:1] if torch is not None and torch >= (2, 7) else size, CALLS),
        (["TORCH_NCCL_DUMP_ON_TIMEOUT"], "1"),
        (["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"], f"{run}/dumps/{DUMPS}"),
    ):
        known = size if names[0] in size else names
        if not any(name in given for name in known):
            made.update(dict.fromkeys(names, value))
    return made


def torch_version(command: Sequence[str]) -> tuple[int, int] | None:
    """Of the PyTorch that this command would import, told from its files: (2, 13). None where that cannot be told."""
    for name in (command[0], "python", "python3"):
        python = _interpreter(shutil.which(name))
        if python is None:
            continue
        for file in sorted(python.parent.parent.glob("lib*/python3.*/site-packages/torch/version.py")):
            with contextlib.suppress(OSError):
                if found := re.search(r"__version__ = '(\d+)\.(\d+)", file.read_text("utf-8", "replace")):
                    return int(found[1]), int(found[2])
    return None


def _interpreter(path: str | None) -> Path | None:
    """The Python that runs a script, or the path itself if it is one."""
    if path is None:
        return None
    if Path(path).name.startswith("python"):
        return Path(path)
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        first = file.readline(400).decode("utf-8", "replace")
        if (found := re.match(r"#!\s*(/\S*python[\d.]*)\s", first)) is not None:
            return Path(found[1])
    return None
