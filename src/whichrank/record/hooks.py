"""Where phases begin and end: wrappers around what trainings call, put in place as torch is imported.

A wrapper keeps name, signature, documentation and module of what it wraps, so that it pickles and reads alike. Under
torch.compile it is nothing but a call of the original: `is_compiling` is a constant there.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from . import recorder as phases
from .recorder import COLLECTIVE, OURS, Recorder, texts

active: Recorder | None = None  # of this process, once it is a rank


def nothing(*args: Any) -> bool:
    return False


on_init: Callable[[dict[str, Any]], Any] = nothing  # before and after init_process_group
after_init: Callable[[], Any] = nothing
is_compiling: Callable[[], bool] = nothing  # torch's own, as soon as it is there


def wrapped(function: Any, code: int, word: str = "") -> Any:
    """`function` as a phase of its own."""
    name = texts(word or getattr(function, "__name__", ""))

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = active
        if is_compiling() or recorder is None:
            return function(*args, **kwargs)
        before = recorder.enter(code, name)
        try:
            return function(*args, **kwargs)
        finally:
            recorder.leave(before)

    wrapper._whichrank = True  # type: ignore[attr-defined]
    return wrapper


def replace(holder: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put make(original) in its place, once."""
    original = getattr(holder, name, None)
    if original is not None and not getattr(original, "_whichrank", False):
        setattr(holder, name, make(original))


# --- torch.distributed

COLLECTIVES = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
    "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "irecv", "isend", "monitored_barrier", "new_group",
    "new_subgroups", "new_subgroups_by_enumeration", "recv", "recv_object_list", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
    "shrink_group", "split_group", "_all_gather_base", "_reduce_scatter_base",
)  # fmt: skip
MAKE_GROUPS = ("new_group", "new_subgroups", "new_subgroups_by_enumeration", "shrink_group", "split_group")
WITHOUT_GROUP = ("batch_isend_irecv", *MAKE_GROUPS)
NOT_NUMBERED = (
    "irecv",
    "isend",
    "recv",
    "recv_object_list",
    "send",
    "send_object_list",
)  # point-to-point: others count them


class Names:
    """The texts of an operation's phases, by group: made once for each. No group is kept alive for it."""

    def __init__(self, module: Any, word: str) -> None:
        self.module = module
        self.word = word
        self.known: dict[int, tuple[bytes, bool]] = {}

    def of(self, group: Any) -> tuple[bytes, int]:
        """The texts, and the number that the next collective of the group will have; -1 where that is not known."""
        if group is None:
            group = self.module.GroupMember.WORLD
            if group is None:
                return texts(self.word), -1
        known = self.known.get(id(group))
        if known is None:
            known = self._learn(group)
        if not known[1]:
            return known[0], -1
        return known[0], group._get_sequence_number_for_group() + 1

    def _learn(self, group: Any) -> tuple[bytes, bool]:
        if len(self.known) > 1000:
            self.known.clear()
        try:
            group._get_sequence_number_for_group()
            numbered = self.word not in NOT_NUMBERED
        except Exception:  # a backend that does not count
            numbered = False
        name = str(getattr(group, "group_name", "") or "")
        known = self.known[id(group)] = texts(self.word, name, str(getattr(group, "group_desc", "") or "")), numbered
        return known


EVERY: list[Names] = []


def collective(module: Any, function: Any) -> Any:
    names = Names(module, function.__name__)
    EVERY.append(names)
    place = _place_of(function, "group")
    none = texts(function.__name__)
    done = after_init if function.__name__ in MAKE_GROUPS else None

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = active
        if is_compiling() or recorder is None:
            return function(*args, **kwargs)
        if place < 0:
            said, seq = none, -1
        else:
            group = kwargs.get("group")
            if group is None and len(args) > place:
                group = args[place]
            said, seq = named(names, group)
        before = recorder.enter(COLLECTIVE, said, seq)
        try:
            return function(*args, **kwargs)
        finally:
            recorder.leave(before)
            if done is not None:
                done()

    wrapper._whichrank = True  # type: ignore[attr-defined]
    return wrapper


def named(names: Names, group: Any) -> tuple[bytes, int]:
    try:
        return names.of(group)
    except (RuntimeError, *OURS):
        return texts(names.word), -1


def _place_of(function: Any, parameter: str) -> int:
    """Where a parameter stands among the positional ones; -1 where there is none."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return -1
    return names.index(parameter) if parameter in names and function.__name__ not in WITHOUT_GROUP else -1


def patch_distributed(module: Any) -> None:
    made: dict[int, Any] = {}
    for name in COLLECTIVES:
        original = getattr(module, name, None)
        if callable(original) and not getattr(original, "_whichrank", False):
            made.setdefault(id(original), collective(module, original))
            _everywhere(module, name, original, made[id(original)])
    for name, make in (("init_process_group", _initialising), ("destroy_process_group", _destroying)):
        original = getattr(module, name, None)
        if callable(original) and not getattr(original, "_whichrank", False):
            _everywhere(module, name, original, make(original))
    work = getattr(module, "Work", None)
    if work is not None:
        replace(work, "wait", lambda wait: wrapped(wait, COLLECTIVE, "wait"))


def _everywhere(module: Any, name: str, original: Any, wrapper: Any) -> None:
    """In its module; and, where torch.distributed has it already, there and in the compiler's table of collectives."""
    setattr(module, name, wrapper)
    package = sys.modules.get("torch.distributed")
    if package is not None and getattr(package, name, None) is original:
        setattr(package, name, wrapper)
    functional = sys.modules.get("torch.distributed._functional_collectives")
    remaps = getattr(functional, "traceable_collective_remaps", None)
    if isinstance(remaps, dict) and original in remaps:
        remaps[wrapper] = remaps[original]


def _initialising(function: Any) -> Any:
    name = texts(function.__name__)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        on_init(kwargs)
        recorder = active
        if recorder is None:
            return function(*args, **kwargs)
        before = recorder.enter(phases.INIT, name)
        try:
            return function(*args, **kwargs)
        finally:
            recorder.leave(before)
            after_init()

    wrapper._whichrank = True  # type: ignore[attr-defined]
    return wrapper


def _destroying(function: Any) -> Any:
    teardown = wrapped(function, phases.TEARDOWN)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for names in EVERY:
            names.known.clear()
        return teardown(*args, **kwargs)

    wrapper._whichrank = True  # type: ignore[attr-defined]
    return wrapper


# --- the others


def patch_compiler(module: Any) -> None:
    global is_compiling
    is_compiling = module.is_compiling


def patch_serialization(module: Any) -> None:
    torch = sys.modules.get("torch")
    for name in ("save", "load"):
        original = getattr(module, name)
        replace(module, name, lambda function: wrapped(function, phases.CHECKPOINT, "torch." + function.__name__))
        if torch is not None and getattr(torch, name, None) is original:
            setattr(torch, name, getattr(module, name))


def checkpoint(*names: str) -> Callable[[Any], None]:
    """A patch for functions that save or load."""

    def patch(module: Any) -> None:
        package = sys.modules.get(module.__name__.rpartition(".")[0])
        for name in names:
            original = getattr(module, name, None)
            if original is None:
                continue
            word = "%s.%s" % (module.__name__.rpartition(".")[0].rpartition(".")[2], name)
            replace(module, name, lambda function, word=word: wrapped(function, phases.CHECKPOINT, word))  # type: ignore[misc]
            if package is not None and getattr(package, name, None) is original:
                setattr(package, name, getattr(module, name))

    return patch


def patch_loader(module: Any) -> None:
    """Waiting for the next batch, and for the workers to start."""
    replace(module._BaseDataLoaderIter, "__next__", _fetching)
    replace(module.DataLoader, "__iter__", lambda start: wrapped(start, phases.DATA, "workers"))


def _fetching(function: Any) -> Any:
    name = texts("batch")

    @functools.wraps(function)
    def __next__(self: Any) -> Any:
        recorder = active
        if is_compiling() or recorder is None:
            return function(self)
        before = recorder.enter(phases.DATA, name)
        try:
            found = function(self)
            if before is not None:
                recorder.batch()
            return found
        finally:
            recorder.leave(before)

    __next__._whichrank = True  # type: ignore[attr-defined]
    return __next__


stepping: list[Any] = []  # of the optimizer that is in its step


def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    recorder = active
    if is_compiling() or recorder is None:
        return
    if stepping:  # one that raised: its end was never seen
        recorder.leave(stepping.pop())
    stepping.append(recorder.enter(phases.OPTIMIZER, b""))


def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    recorder = active
    if is_compiling() or recorder is None or not stepping:
        return
    before = stepping.pop()
    recorder.leave(before)
    if before is not None:
        recorder.stepped(id(optimizer))


def patch_optimizer(module: Any) -> None:
    module.register_optimizer_step_pre_hook(before_step)
    module.register_optimizer_step_post_hook(after_step)


def patch_module(module: Any) -> None:
    """`eval()` begins an evaluation, `train()` ends it; `train` calls itself for each child, and `eval` calls it."""
    replace(module.Module, "eval", _evaluating)
    replace(module.Module, "train", _training)


def _evaluating(function: Any) -> Any:
    @functools.wraps(function)
    def eval(self: Any) -> Any:
        recorder = active
        if not is_compiling() and recorder is not None and recorder.base == phases.COMPUTE:
            recorder.settle(phases.EVALUATION)
        return function(self)

    eval._whichrank = True  # type: ignore[attr-defined]
    return eval


def _training(function: Any) -> Any:
    @functools.wraps(function)
    def train(self: Any, mode: bool = True) -> Any:
        recorder = active
        if mode and not is_compiling() and recorder is not None and recorder.base == phases.EVALUATION:
            recorder.settle(phases.COMPUTE)
        return function(self, mode)

    train._whichrank = True  # type: ignore[attr-defined]
    return train


compilations: list[Any] = []


def patch_callbacks(module: Any) -> None:
    """The compiler's callbacks are cleared by torch._dynamo.reset(): what calls them is not."""
    handler = module.CompilationCallbackHandler
    replace(handler, "run_start_callbacks", lambda function: _compiling(function, True))
    replace(handler, "run_end_callbacks", lambda function: _compiling(function, False))


def _compiling(function: Any, begins: bool) -> Any:
    name = texts("torch.compile")

    @functools.wraps(function)
    def run_callbacks(*args: Any, **kwargs: Any) -> Any:
        recorder = active
        if recorder is not None:
            if begins:
                compilations.append(recorder.enter(phases.COMPILE, name))
            elif compilations:
                recorder.leave(compilations.pop())
        return function(*args, **kwargs)

    run_callbacks._whichrank = True  # type: ignore[attr-defined]
    return run_callbacks


def patch_frames(module: Any) -> None:
    """Inside a compiled region the compiler looks at every frame that runs: not at those of this package."""
    for code in our_code():
        module.skip_code(code)


def our_code() -> set[CodeType]:
    """All code of the modules of this package that are loaded, with the functions inside of functions."""
    package = __name__.rpartition(".")[0]
    left: list[Any] = []
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(package + "."):
            for found in list(vars(module).values()):
                if getattr(found, "__module__", None) == name:
                    left += [found, *vars(found).values()] if isinstance(found, type) else [found]
    left = [found.__code__ for found in left if isinstance(found, FunctionType)]
    codes: set[CodeType] = set()
    while left:
        code = left.pop()
        codes.add(code)
        left += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return codes


def patch_parallel(module: Any) -> None:
    """The ranks compare their parameters: each waits for all."""
    replace(
        module.DistributedDataParallel,
        "__init__",
        lambda function: wrapped(function, phases.INIT, "DistributedDataParallel"),
    )


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch.compiler": patch_compiler,
    "torch.distributed.distributed_c10d": patch_distributed,
    "torch.serialization": patch_serialization,
    "torch.utils.data.dataloader": patch_loader,
    "torch.optim.optimizer": patch_optimizer,
    "torch.nn.modules.module": patch_module,
    "torch.nn.parallel.distributed": patch_parallel,
    "torch._dynamo.eval_frame": patch_frames,
    "torch._dynamo.callback": patch_callbacks,
    "torch.distributed.checkpoint.state_dict_saver": checkpoint("save", "async_save", "save_state_dict"),
    "torch.distributed.checkpoint.state_dict_loader": checkpoint("load", "load_state_dict"),
    "safetensors.torch": checkpoint("save_file", "load_file", "save_model", "load_model"),
}
