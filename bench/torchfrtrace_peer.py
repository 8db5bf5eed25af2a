"""torchfrtrace on one folder after the other: run by an interpreter that has torch, apart from whichrank.

One JSON object a line in: {"folder", "prefix", "incomplete"}; one a line out: {"named", "mechanism", "error",
"seconds"}. torch is imported once, and each folder analysed in a child, so that a crash is that folder's alone. Its
answer is the first block that it prints and that accuses anything (torch/distributed/flight_recorder/components/{types,utils}.py, torch 2.13):

    Not all ranks joining collective, sequence number: 7 … missing ranks: {3}
    Collective sequence number: 7 has errors … error msg: Culprit rank 3; Error type: SIZE_OR_SYNTAX_MISMATCH, …
    Input/output mismatch in the collective sequence number: 7
    We cannot decide what's wrong with this collective entry because we missed FR dumps from ranks ({3}) …
    No errors found for this collective entry, There could be some other reasons …
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 300  # seconds for one folder
FIRST = re.compile(
    r"(?P<absent>Not all ranks joining collective)|(?P<errors>Collective sequence number: \d+ has errors)"
    r"|(?P<sizes>Input/output mismatch in the collective)|(?P<undecided>We cannot decide what's wrong)"
    r"|(?P<none>No errors found for this collective)"
)


def first_block(text: str) -> dict[str, object]:
    """What its first block says that accuses somebody or something; else that it found nothing, or is silent."""
    starts = [*FIRST.finditer(text)]
    ends = [*(after.start() for after in starts[1:]), len(text)]
    for found, end in zip(starts, ends, strict=False):
        block = text[found.start() : end]
        if found["absent"]:
            ranks = re.search(r"missing ranks: \{([\d, ]*)\}", block)
            return {"named": [*map(int, ranks[1].split(","))] if ranks else [], "mechanism": "host_stuck", "error": ""}
        if found["errors"]:
            named = sorted({*map(int, re.findall(r"Culprit rank (\d+)", block))})
            return {"named": named, "mechanism": "mismatch", "error": ""}
        if found["sizes"]:
            return {"named": [], "mechanism": "mismatch", "error": ""}
    return {"named": [], "mechanism": "undecided", "error": "decides nothing" if starts else "silent"}


def analyse(asked: dict[str, object]) -> dict[str, object]:
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            _child(asked, out.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        text = out.read().decode(errors="replace")
    said = first_block(text)
    if os.waitstatus_to_exitcode(status) != 0 and said["error"] == "silent":
        why = "too slow" if status & 0x7F == signal.SIGALRM else (text.strip().splitlines() or ["?"])[-1]
        said["error"] = f"crashed: {why[:120]}"
    return {**said, "seconds": time.perf_counter() - start}


def _child(asked: dict[str, object], out: int) -> None:
    os.dup2(out, 1)
    os.dup2(out, 2)
    signal.alarm(LIMIT)
    from torch.distributed.flight_recorder.fr_trace import main

    try:
        main(
            [
                str(asked["folder"]),
                "-p",
                str(asked["prefix"]),
                *["--allow-incomplete-ranks"] * bool(asked["incomplete"]),
            ]
        )
    except BaseException as why:  # its AssertionErrors and exits are answers too: of a kind
        code = getattr(why, "code", 1)
        print(f"{type(why).__name__}: {why}", file=sys.stderr, flush=True)
        os._exit(0 if code in (0, None) and isinstance(why, SystemExit) else 1)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    import torch.distributed.flight_recorder.fr_trace  # noqa: F401 (once, for all children)

    for line in sys.stdin:
        asked = json.loads(line)
        if not Path(str(asked["folder"])).is_dir():
            print(json.dumps({"named": [], "mechanism": "undecided", "error": "no folder", "seconds": 0.0}), flush=True)
            continue
        print(json.dumps(analyse(asked)), flush=True)


if __name__ == "__main__":
    main()
