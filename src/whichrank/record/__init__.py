"""The recorder: runs inside each rank, and keeps what it does in a file that outlives it.

Starts by itself where `whichrank run` (or anybody) sets WHICHRANK_RUN and puts the folder `inject` on PYTHONPATH, under
the name `_whichrank_record`; or by `whichrank.watch()`. Standard library only, Python 3.8 and newer; nothing else of
whichrank is imported. What it does not get is not recorded, and it says so to nobody: docs/record.md.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from . import hooks, identity, imports

__all__ = ["begin", "phase", "watch"]

_hooked = False
_rank: int | None = None
_sampler: Any = None
_facts: dict[str, object] = {}
_directory: str | None = None


class Phase:
    """`with whichrank.phase("tokenise"):` what the main thread does within is shown under this name."""

    __slots__ = ("_before", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._before: Any = None

    def __enter__(self) -> None:
        recorder = hooks.active
        if recorder is not None:
            from .recorder import OWN, texts

            self._before = recorder.enter(OWN, texts(str(self._name)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hooks.active is not None:
            hooks.active.leave(self._before)


class _Nothing:
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def phase(name: str) -> Phase | _Nothing:
    """A context manager that names what the training does: `with whichrank.phase("tokenise"):`.

    Where nothing records (no launcher, no `watch()`, a thread, a worker), it costs a tenth of a microsecond.
    """
    if hooks.active is None or hooks.is_compiling():
        return _Nothing()  # a new one: torch.compile enters only those that were made where it looks
    return Phase(name)


def begin() -> None:
    """Called as the interpreter starts, where WHICHRANK_RUN is set. Never raises."""
    try:
        if os.environ.get(identity.RUN) and not identity.child_of_a_rank() and not identity.launcher():
            _start(os.environ[identity.RUN])
    except Exception:
        pass


def watch(directory: str | os.PathLike[str] | None = None) -> str | None:
    """Record this rank from here on: phases, steps, stacks. Call it once, as early as may be, in each rank.

    directory: where the ranks of this node keep their files: WHICHRANK_RUN by default, else a folder in memory
    (/dev/shm). Returns it; None where nothing is recorded. Never raises. Where RANK and LOCAL_RANK are not set, it
    begins with torch.distributed.init_process_group.
    """
    try:
        if not identity.child_of_a_rank():
            _start(os.fspath(directory or os.environ.get(identity.RUN) or identity.directory()))
            return _directory
    except Exception:
        pass
    return None


def _start(directory: str) -> None:
    global _hooked, _directory
    if _hooked:
        return
    _hooked = True
    _directory = directory
    hooks.on_init, hooks.after_init = _initialising, _initialised
    imports.install(hooks.PATCHES)
    os.register_at_fork(after_in_child=_forked)
    rank = identity.told_rank()
    if rank is not None:
        _record(rank)


def _record(rank: int | None) -> None:
    """This process is a rank: its file, its thread, its hooks for exceptions and the end."""
    global _rank, _sampler, _facts
    import atexit

    from . import errors
    from .recorder import Recorder
    from .ring import Ring
    from .sampler import Sampler

    assert _directory is not None
    os.environ[identity.RANK_PID] = str(os.getpid())  # even where nothing can be recorded: children are no ranks
    folder = os.path.join(_directory, "ring")
    _facts = identity.facts(rank)
    recorder = Recorder(Ring())
    recorder.ring.identify(_facts)
    _sampler = Sampler(recorder, _directory, os.path.join(folder, identity.file_name(rank, _facts["attempt"])))
    _sampler.start()
    _sampler.attached.wait(0.3)  # a folder that does not answer must not hold the training up
    if _sampler.failed:
        return
    recorder.measure()
    _told(rank)
    errors.install(recorder.ring)
    atexit.register(_at_exit)
    hooks.active = recorder


def _told(rank: int | None) -> None:
    global _rank
    from . import flight

    _rank = rank
    flight.rank = -1 if rank is None else rank


def _initialising(kwargs: dict[str, Any]) -> None:
    """init_process_group is called: whoever calls it is a rank, unless a child of one."""
    try:
        if hooks.active is None and _hooked and _sampler is None and not identity.child_of_a_rank():
            asked = kwargs.get("rank")
            known = asked if isinstance(asked, int) and asked >= 0 else identity.number(identity.RANKS)
            _record(known)
    except Exception:
        pass


def _initialised() -> None:
    """What torch says now: it knows the rank, whoever started it."""
    try:
        import sys

        if hooks.active is None:
            return
        distributed = sys.modules["torch.distributed"]
        torch = sys.modules["torch"]
        if not distributed.is_initialized():
            return
        rank = distributed.get_rank()
        _facts.update(
            rank=rank,
            world=distributed.get_world_size(),
            torch=str(torch.__version__),
            backend=str(distributed.get_backend()),
            groups=identity.groups(distributed.distributed_c10d),
        )
        address = _store(distributed.distributed_c10d)
        if address:
            _facts["store"] = address
        if rank != _rank:
            _told(rank)
            _sampler.path = os.path.join(os.path.dirname(_sampler.path), identity.file_name(rank, _facts["attempt"]))
        hooks.active.ring.identify(_facts)
    except Exception:
        pass


def _store(module: Any) -> str | None:
    """Nothing is asked of it here: the launcher's side speaks to it, over a connection of its own."""
    try:
        return identity.store(module)
    except Exception:
        return None


def _forked() -> None:
    """A child of a rank is none: a DataLoader's worker must not write into its parent's file."""
    global _sampler
    from . import errors

    recorder, hooks.active = hooks.active, None
    errors.ring = None
    if recorder is not None:
        _sampler = None
        try:
            recorder.ring.close()
        except Exception:
            pass


def _at_exit() -> None:
    """The interpreter exits in order: a last beat says so."""
    recorder = hooks.active
    if recorder is None or _sampler is None:
        return
    try:
        from . import errors
        from .recorder import TEARDOWN, texts

        errors.at_exit()
        recorder.exiting = True
        recorder.enter(TEARDOWN, texts("exit"))
        _sampler.stop()
    except Exception:
        pass
