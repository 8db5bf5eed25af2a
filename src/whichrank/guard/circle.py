"""The ranks of a group, and a line between them that is the guards' own.

Data goes over a gloo group of its own, whatever the training uses, point to point, each wait with its own limit: a
process that ends is noticed at once, since its connections close. Who is where is written to the store that
init_process_group left: by the clerk, once a rank has waited for two seconds, so that a quick call costs nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from . import clerk, failure
from .clerk import STORE_SECONDS
from .errors import GuardError, RanksMissing, named
from .line import Line, cut, eagerly

SOON = 2.0  # seconds of waiting after which a rank says where it is
GRACE = 3.0  # seconds in which the others say so once something broke
TELL = 30.0  # seconds between two words on a long wait
CONNECT = 60.0  # seconds in which ranks that are all there make their connections, at least


class Circle(Line):
    """The members of a group, from the point of view of one of them."""

    def __init__(self, ranks: tuple[int, ...], me: int, store: Any) -> None:
        super().__init__()
        self.ranks = ranks
        self.me = me  # index in `ranks`
        self.store = store
        self.calls = 0  # of guards on this circle: in step on all of them
        self.busy: str = ""  # the guard in whose work this rank is, alone
        self.broken: str = ""
        self.call = ""  # "agree() at train.py:41", while this rank waits
        self._since = 0.0
        self._announced = False
        self._written = False  # the store says that this rank waits
        self._told = 0.0
        self._errand: clerk.Errand | None = None

    # --- beginning and end

    def connect(self, call: str, seconds: float) -> None:
        """All come to the store first: who does not is named, and nothing is broken. Then gloo connects them."""
        import torch.distributed as dist

        self.begin_wait(call)
        try:
            clerk.within(seconds + STORE_SECONDS, lambda: self._come(seconds), store_gone(call))
            limit = timedelta(seconds=max(seconds, CONNECT))
            with eagerly():
                self.gloo = dist.new_group(
                    list(self.ranks), limit, "gloo", use_local_synchronization=True, group_desc="whichrank"
                )
        except GuardError:
            raise
        except RuntimeError as error:
            raise GuardError(f"{call}: the guards' own group could not be made: {error}") from error
        finally:
            self.end_wait()
        self._errand = clerk.every(1.0, self._while_waiting)

    def _come(self, seconds: float) -> None:
        try:
            self.announce()
            if int(self.store.add("came", 1)) == len(self.ranks):
                self.store.set("all came", "1")
            self._until("all came", seconds)
            self._leave_if_failed()
        except GuardError:
            raise
        except RuntimeError as error:
            raise store_gone(self.call) from error

    def _until(self, key: str, seconds: float) -> None:
        begun = time.monotonic()
        while not self.store.check([key]):  # not store.wait(), which writes to the log when it runs out of time
            if time.monotonic() - begun > seconds:
                missing = self._give_up(self.missing(seconds), seconds)
                self._let_all_read(missing.ranks)
                raise missing
            self._leave_if_failed()
            self._while_waiting()
            time.sleep(min(0.5, max(0.01, (time.monotonic() - begun) / 10)))

    def close(self, why: str) -> None:
        """Every wait on this circle ends, here and on the others; nothing more goes over it."""
        self.broken = self.broken or why
        if self._errand:
            self._errand.stop()
        if self.gloo is not None:
            cut(self.gloo)

    # --- who is where

    def begin_wait(self, call: str) -> None:
        self.call, self._since, self._announced, self._told = call, time.monotonic(), False, TELL

    def end_wait(self) -> None:
        self.call = ""  # the clerk takes back what it has told the store: the training does not wait for that

    def announce(self, parted: bool = False) -> None:
        self._announced = self._written = True
        self._write(self.call, parted)

    def _write(self, call: str, parted: bool = False) -> None:
        said = {"calls": self.calls, "call": call, "parted": parted, "pid": os.getpid()}
        self.store.set(f"at {self.me}", json.dumps(said))

    def where(self) -> list[dict[str, Any] | None]:
        """What each member last said of itself."""
        keys = [f"at {index}" for index in range(len(self.ranks))]
        if self.gloo is not None or self.store.check(keys):
            return [json.loads(said) for said in self.store.multi_get(keys)]
        return [json.loads(self.store.get(key)) if self.store.check([key]) else None for key in keys]

    def absent(self, parted: bool = False) -> list[int]:
        """The indices of those that are not known to wait in this very call; parted: to have seen that it failed. Who
        has said that it waits may have died since; who says that it saw the failure lives."""
        return [
            index
            for index, said in enumerate(self.where())
            if index != self.me
            and not (said and said["call"] and said["calls"] == self.calls and (said["parted"] or not parted))
        ]

    def waited(self) -> float:
        return time.monotonic() - self._since

    def _while_waiting(self) -> None:
        """The clerk's, once a second."""
        if not self.call:
            if self._written:
                self._written = False
                self._write("")
            return
        if self.waited() < SOON:
            return
        if not self._announced:
            self.announce()
        if self.waited() >= self._told and self.me <= 1:
            absent = self.absent()
            if self.me == 0 or 0 in absent:  # one of them speaks for all
                self._told = self.waited() + TELL
                self.say(self.waiting(absent))

    def waiting(self, absent: list[int]) -> str:
        ranks = [self.ranks[index] for index in absent]
        return f"{self.call}: waits since {self.waited():.0f} s for {named(ranks) if ranks else 'the answer'}"

    def tell_at(self, waited: float) -> None:
        self._told = waited

    def say(self, text: str) -> None:
        print(f"whichrank.guard: rank {self.ranks[self.me]}: {text}", file=sys.stderr, flush=True)

    # --- when it does not come to an end

    def failed(self, error: BaseException | None, seconds: float) -> GuardError:
        """What to raise in place of gloo's error: who failed first, or who is missing."""
        self.close(f"the ranks parted in {self.call}, guard call {self.calls}")
        gone = store_gone(self.call)
        try:
            return clerk.within(STORE_SECONDS + 2 * GRACE, lambda: self._roll_call(error, seconds), gone)
        except Exception:
            return gone

    def _roll_call(self, error: BaseException | None, seconds: float) -> GuardError:
        self.announce(parted=True)
        told, end = self._told_failure(), time.monotonic() + GRACE
        while told is None and self.absent(parted=True) and time.monotonic() < end:
            time.sleep(0.1)
            told = self._told_failure()
        found: GuardError
        if told is not None:
            found = failure.peer_failed(told)
        else:
            found = self._gave_up() or self._give_up(self.missing(seconds, error), seconds)
        self._let_all_read(getattr(found, "ranks", ()))
        return found

    def missing(self, seconds: float, error: BaseException | None = None) -> RanksMissing:
        """Who is not here, and where they were last seen, if they said so."""
        absent, where = self.absent(parted=error is not None), self.where()
        ranks = [self.ranks[index] for index in absent]
        late = error is None or self.waited() >= seconds
        why = f"did not come within {seconds:.0f} s" if late else "ended, or left"
        if not ranks:
            text = (
                f"{self.call}: all ranks are there, and yet the connections between them failed ({first_line(error)})."
            )
            return RanksMissing(text + " Next: whichrank diagnose on the ranks' logs; look at the network.")
        lines = [f"{self.call}: {named(ranks)} {why}; the other {len(self.ranks) - len(ranks)} are there."]
        for index in absent[:8]:
            said = where[index]
            if said and said["call"]:
                lines.append(f"  rank {self.ranks[index]} waits in {said['call']}, guard call {said['calls']}")
                lines[-1] += f" (here it is call {self.calls}): the ranks took different ways."
        lines.append(f"Next: look at the end of the log of {named(ranks[:1])}, and, if it lives, py-spy dump it:")
        lines.append("what it does there is what the others wait for.")
        return RanksMissing("\n".join(lines), tuple(ranks))

    def _give_up(self, missing: RanksMissing, seconds: float) -> RanksMissing:
        """Leave word for those that come later."""
        if missing.ranks:
            said = {"ranks": missing.ranks, "call": self.call, "waited": round(min(seconds, self.waited()))}
            self.store.compare_set(f"gave up {self.calls}", "", json.dumps(said))
        return missing

    def _let_all_read(self, absent: tuple[int, ...]) -> None:
        """The process that keeps the store must not end before the others know."""
        end = time.monotonic() + GRACE
        wanted = len(self.ranks) - len(absent)
        try:
            count = int(self.store.add(f"read {self.calls}", 1))
            while count < wanted and time.monotonic() < end:
                time.sleep(0.05)
                count = int(self.store.add(f"read {self.calls}", 0))
        except RuntimeError:  # that process has seen that all have read, and is gone
            pass

    def _gave_up(self) -> GuardError | None:
        """Whether the others did, on this rank."""
        key = f"gave up {self.calls}"
        said = json.loads(self.store.get(key)) if self.store.check([key]) else None
        if said is None or self.ranks[self.me] not in said["ranks"]:
            return None
        text = f"{self.call}: this rank came too late: the others were there in {said['call']} and gave up on it after"
        return GuardError(
            f"{text} {said['waited']} s. Next: see what it did before; or give the guard a longer timeout."
        )

    def _told_failure(self) -> dict[str, Any] | None:
        try:
            if failure.active is not None and failure.active.look():
                return failure.active.known
            if self.store.check([f"failed {self.calls}"]):
                said: dict[str, Any] = json.loads(self.store.get(f"failed {self.calls}"))
                return said
        except Exception:
            pass
        return None

    def _leave_if_failed(self) -> None:
        told = self._told_failure()
        if told is not None:
            raise failure.peer_failed(told)
        gave_up = self._gave_up()
        if gave_up is not None:
            raise gave_up

    def tell_failure(self, error: BaseException) -> dict[str, Any]:
        """Where those that come to this call later find it."""
        said = failure.told(self.ranks[self.me], error)
        key, text = f"failed {self.calls}", json.dumps(said)
        try:
            clerk.within(STORE_SECONDS, lambda: self.store.set(key, text), store_gone(self.call))
        except Exception:
            pass
        return said


def first_line(error: BaseException | None) -> str:
    return "" if error is None else failure.in_short(error)


def store_gone(call: str) -> GuardError:
    text = f"{call}: cannot go on, and the store of init_process_group does not answer: the process that kept it"
    return GuardError(text + " (torchrun's agent, else rank 0) has ended. Next: look at what it wrote last.")
