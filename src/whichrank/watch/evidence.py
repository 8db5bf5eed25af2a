"""A node's evidence for another one: a digest of its run directory, at most so many bytes.

`python -m whichrank.watch.evidence RUN NAME BYTES` prints it: in a process of its own, as every diagnosis.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path

from whichrank.watch import limited
from whichrank.watch.exchange import EVIDENCE
from whichrank.watch.heads import Heard
from whichrank.watch.rundir import RunDir

SECONDS = 12.0
# What is left out first, where it is too much: the output and the records of calls, then all but stacks and events.
LESS = (("",), ("ring", "stacks", "host", "events.jsonl"), ("stacks", "events.jsonl"))


def of(run: RunDir, label: str, most: int = EVIDENCE) -> bytes:
    """Nothing where it could not be made in time."""
    package = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])}
    env.pop("WHICHRANK_RUN", None)
    command = (sys.executable, "-m", "whichrank.watch.evidence", str(run.path), label, str(most))
    ran = limited.run(command, SECONDS, env)
    return ran.out if ran.code == 0 and len(ran.out) <= most else b""


def name(host: str, number: int) -> str:
    """Where in the run directory another node's evidence lies.

    >>> name("node-b/../x", 3)
    'nodes/node-b-..-x-3.digest'
    """
    safe = re.sub(r"[^\w.-]", "-", host)[:60]
    return f"nodes/{safe}-{number}.digest"


def clear(run: RunDir) -> None:
    """What was sent at a stall that passed knows nothing of what comes after it."""
    with contextlib.suppress(OSError):
        for path in (run.path / "nodes").glob("*.digest"):
            path.unlink()


def told(run: RunDir, heard: Heard) -> None:
    """What a node said, as an event: evidence where its own is not there."""
    state = heard.state
    run.event(
        "node",
        host=state.host,
        number=heard.number,
        told_ns=int(state.at * 1e9),
        clock_off=round(heard.off, 1),
        attempt=state.attempt,
        world=state.world,
        ranks=[asdict(one) for one in state.ranks],
        ended=[asdict(one) for one in state.ended],
    )


def main(run: Path, label: str, most: int) -> None:
    from whichrank.evidence.reduce import reduce

    for parts in LESS:
        data = reduce([str(run / part) for part in parts if (run / part).exists()], label).data
        if len(data) <= most:
            break
    sys.stdout.buffer.write(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
