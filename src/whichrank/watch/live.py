"""What is said while the job runs: five lines on standard error, again when the answer changes, and taken back."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.ranges import several
from whichrank.report.printable import printable
from whichrank.watch import answer, keep, output
from whichrank.watch.detector import Stall
from whichrank.watch.rundir import RunDir

if TYPE_CHECKING:
    from whichrank.watch.front import Options

DOING = {
    "init": "starting up",
    "data": "waiting for a batch from its DataLoader",
    "compute": "in code of its own between two collectives",
    "optimizer": "in the optimizer's step",
    "collective": "in a collective",
    "checkpoint": "saving or loading a checkpoint",
    "evaluation": "evaluating",
    "compile": "compiling",
    "teardown": "shutting down",
    "stopped": "its process is stopped (state T)",
    "unknown": "in code of its own",
}


class Voice:
    def __init__(self, options: Options, run: RunDir) -> None:
        self.options, self.run = options, run
        self.last: answer.Answer | None = None
        self.told: Stall | None = None
        self.spoke = False
        self.besides = ""  # what the reader is to know of how it was found

    def stalled(self, stall: Stall, seconds: float, where: str = "", again: bool = False) -> None:
        """where: the hosts of its ranks, in a job of several nodes. again: another one was told, which this one goes on."""
        found = answer.ask(self.run.path)
        if self.told is stall and (found is None or (self.last is not None and found.key == self.last.key)):
            return
        if again and found is not None and self.last is not None and found.key == self.last.key:
            self.told = stall
            return
        first = self.told is not stall and not again
        self.told, self.last = stall, found
        self._event(found, seconds)
        self.say([head(stall, seconds, where), *self._body(found)])
        if first and self.options.on_hang:
            on_hang(self.options.on_hang, self.run.path)

    def passed(self, stall: Stall, seconds: float) -> None:
        if self.told is stall:
            self.say([f"{several(stall.ranks)} went on after {seconds:.0f} s: what was said above no longer holds"])
            self.told = self.last = None

    def died(self, ranks: list[int]) -> None:
        found = answer.ask(self.run.path)
        self.last = found
        self._event(found, None)
        self.say([f"{several(tuple(ranks))} ended, the others are still there", *self._body(found)])

    def ended(self, code: int | None, terminated: bool, quiet: bool = False, first: bool = True) -> None:
        """The report of the whole run; told where something went wrong that was not told before. quiet: by another node.
        first: this node is the one to say so if nothing can be known."""
        found = answer.ask(self.run.path)
        self._event(found, None)
        if quiet:
            return
        if found is None or found.cause == "none" or (code == 0 and self.told is None):
            return
        if self.last is None or found.key != self.last.key:
            if found.cause == "undecided" and not found.culprits and not first:
                return
            how = f"the job ended with exit code {code}" if code is not None else "the job ended"
            if found.cause == "undecided" and not found.culprits:
                if terminated:
                    return  # it ended because it was told to
                self.say([f"{how}; the evidence does not say why: whichrank {self.run.path}"])
            else:
                self.say([how, *self._body(found)])

    def flush_report(self) -> None:
        self._event(answer.ask(self.run.path), None)

    def keep(self, why: str, attempt: int) -> None:
        """A copy of the evidence to `--keep`."""
        assert self.options.keep is not None
        name = f"{self.run.run.get('host', 'node')}-{self.run.path.name}-a{attempt}-{why}.tar.gz"
        began = time.monotonic()
        done = keep.copied(self.run.path, self.options.keep, name, self.options.keep_seconds)
        self.run.event("kept", name=name, done=done, seconds=round(time.monotonic() - began, 1))
        if not done:
            self.say(
                [
                    f"the evidence could not be copied to {self.options.keep} within {self.options.keep_seconds:.0f} s; it is in {self.run.path}"
                ]
            )

    def _event(self, found: answer.Answer | None, seconds: float | None) -> None:
        if found is None:
            self.run.event("no_answer")
        else:
            self.run.event(
                "verdict",
                cause=found.cause,
                grade=found.grade,
                ranks=found.culprits,
                rank_grade=found.rank_grade,
                seconds=seconds,
            )

    def _body(self, found: answer.Answer | None) -> list[str]:
        where = f"  all    whichrank {self.run.path}"
        if found is None:
            return [where]
        lines = [f"  why    {found.says} (cause {found.grade}, rank {found.rank_grade})"]
        if found.proof:
            lines.append(f"  proof  {found.proof}")
        if found.now:
            lines.append(f"  now    {found.now}")
        if self.besides:
            lines.append(f"  but    {self.besides}")
        return [*lines, where]

    def say(self, lines: list[str]) -> None:
        self.spoke = True
        if not self.options.quiet:
            output.write(2, "".join(f"whichrank: {line}\n" for line in lines).encode("utf-8", "replace"))


def head(stall: Stall, seconds: float, where: str = "") -> str:
    """The first line: who, since when, doing what.

    >>> head(Stall((2,), "data", 100.0, 111.0, 41, (0, 1, 3)), 14.2)
    'rank 2 has kept ranks 0, 1, 3 waiting for 14 s: waiting for a batch from its DataLoader, after step 41'
    >>> head(Stall((2,), "stopped", 100.0, 111.0, 0, (0, 1)), 9.0, "node-b")
    'rank 2 (node-b) has kept ranks 0, 1 waiting for 9 s: its process is stopped (state T)'
    """
    who = several(stall.ranks) + (f" ({printable(where)})" if where else "")
    after = f", after step {stall.step}" if stall.step else ""
    if stall.all_wait:
        where = "in initialisation" if stall.phase == "init" else "waiting in a collective"
        return f"{several(stall.ranks)} have all been {where} for {seconds:.0f} s{after}"
    doing = DOING.get(stall.phase) or f"in {stall.phase.removeprefix('own:')}"
    others = tuple(rank for rank in stall.waiting if rank not in stall.ranks)
    if not others:
        return f"{who}: {doing} for {seconds:.0f} s{after}"
    kept = "has kept" if len(stall.ranks) == 1 else "have kept"
    return f"{who} {kept} {several(others)} waiting for {seconds:.0f} s: {doing}{after}"


def on_hang(command: str, run: Path) -> None:
    """The user's own command, with the report's path. It is started and not waited for."""
    with contextlib.suppress(OSError):
        subprocess.Popen(
            ("/bin/sh", "-c", f'{command} "$@"', "whichrank", str(run / "report.json")),
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()) and None,
        )
