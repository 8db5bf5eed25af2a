"""What a call is: a collective, a wrapper, a question for the rank, a function of the file, or something unknown."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from whichrank.lint import builtin, collectives, names
from whichrank.lint.expressions import (
    BY_RANK,
    FED,
    MAY_LACK,
    SHAPE,
    attribute,
    environment,
    evaluate,
    forward_op,
    is_wrapped,
    method_of,
)  # fmt: skip
from whichrank.lint.run import PROBE, Run, place_of
from whichrank.lint.trace import Save
from whichrank.lint.values import (
    ACCELERATOR,
    CALLED,
    CONTAINER,
    ELEMENT,
    FILE_SYSTEM,
    FSDP,
    HF_TRAINER,
    LENGTHS,
    LOADER,
    METRIC,
    OUTPUT,
    OWN_LENGTH,
    PARAMETER,
    RANK,
    SHARDED,
    TRAINER,
    WORLD,
    Value,
    constant,
    tags_of,
)  # fmt: skip

# Given a model, these return no output of it.
PARTS = re.compile(
    r"optim|Adam|SGD|sched|param|count|summary|save|load|log|watch|len|id|type|print|hook|EMA|clip|state|Lion|Metric"
)
CONTENT = frozenset(
    ["item", "any", "all", "isnan", "isinf", "isfinite", "nonzero", "count_nonzero"]
)  # what only tensors are asked
NO_CONTENT = frozenset(
    [
        "parameters",
        "named_parameters",
        "buffers",
        "modules",
        "state_dict",
        "named_modules",
        "children",
        "keys",
        "config",
    ]
)
KEEPS_TAGS = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "float",
        "half",
        "bfloat16",
        "double",
        "eval",
        "train",
        "requires_grad_",
        "clone",
        "detach",
        "contiguous",
        "compile",
        "xpu",
        "npu",
    ]
)
PASSES_ON = frozenset(
    [
        "map",
        "shuffle",
        "with_format",
        "set_format",
        "batched",
        "batch",
        "prefetch",
        "cast",
        "rename_column",
        "remove_columns",
    ]
)
ENDS_PARTS = frozenset(["with_epoch", "repeat", "cycle", "take", "with_length"])
ADDS = frozenset(["append", "extend", "insert", "update", "appendleft", "add"])
FILLS = frozenset(
    ["fill_", "copy_", "add_", "mul_", "zero_", "set_", "append", "extend", "insert", "update", "appendleft"]
)


@dataclass(frozen=True, slots=True)
class Called:
    """A call with its parts evaluated. name: imports resolved; last: its last word."""

    node: ast.Call
    func: Value
    receiver: Value | None
    name: str
    last: str
    args: tuple[Value, ...]
    words: dict[str, Value]

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.args, *self.words.values())

    def argument(self, at: int, word: str) -> Value | None:
        if word in self.words:
            return self.words[word]
        return (
            self.args[at]
            if at < len(self.args) and not any(isinstance(a, ast.Starred) for a in self.node.args)
            else None
        )

    def key(self) -> tuple[object, ...]:
        return ("call", place_of(self.node), self.func.key, tuple(value.key for value in self.values))


def call(run: Run, node: ast.Call) -> Value:
    called = _evaluated(run, node)
    if called.func.key == PROBE.key:
        run.probed = True
        return Value(("probed", place_of(node)))
    if isinstance(node.func, ast.Call) and names.FIRST_ONLY.search(run.source.dotted(node.func.func).replace("$", "")):
        return _for_the_first(run, node)
    if (own := _of_the_file(run, called)) is not None:
        return own
    for known in (_rank_question, builtin.answer, collectives.answer, _wrapped_module, _file_operation, _own_state):
        value = known(run, called)
        if value is not None:
            return value
    return _unknown(run, called)


def _for_the_first(run: Run, node: ast.Call) -> Value:
    """`rank_zero_only(save)(path)`."""
    assert isinstance(node.func, ast.Call)
    if run.coordinates["rank"] != 0 or len(node.func.args) != 1:
        return constant(None)
    inner = ast.copy_location(ast.Call(node.func.args[0], node.args, node.keywords), node)
    with run.under(run.first()):
        return call(run, inner)


def _evaluated(run: Run, node: ast.Call) -> Called:
    receiver = None
    if isinstance(node.func, ast.Attribute):
        receiver = evaluate(run, node.func.value)
        func = attribute(run, receiver, node.func.attr, node.func)
        name = f"{receiver.dotted or '$'}.{node.func.attr}"
        last = node.func.attr
    else:
        func = evaluate(run, node.func)
        name = func.dotted or run.source.dotted(node.func)
        last = name.rsplit(".", 1)[-1].lstrip("$")
    args = tuple(evaluate(run, each) for each in node.args)
    words = {each.arg or f"**{at}": evaluate(run, each.value) for at, each in enumerate(node.keywords)}
    return Called(node, func, receiver, name, last, args, words)


def _of_the_file(run: Run, called: Called) -> Value | None:
    from whichrank.lint import inline

    func = called.func
    if func.function is not None:
        return inline.call_function(run, func.function, list(called.args), called.words, called.node)
    if func.defines:
        return inline.construct(run, func.defines, called)
    if func.cls:
        for name in ("__call__", "forward"):
            if method := method_of(run, func.cls, name):
                return inline.call_function(
                    run, replace(method, bound=func), list(called.args), called.words, called.node
                )
    return None


def _rank_question(run: Run, called: Called) -> Value | None:
    """get_rank(), is_main_process(), get_data_parallel_group(), is_initialized() …"""
    last = called.last
    group = called.argument(0, "group")
    if last in names.RANK_CALLS and group is not None and not group.known and not group.group:
        run.asked.add(group.key)
    if last == "get_local_rank" and called.receiver is not None and not called.receiver.group:
        run.asked.add(hash(("mesh-group", called.receiver.key)))
    if last in names.RANK_CALLS:
        named = group.const if group and isinstance(group.const, str) else ""
        kind = (
            names.dimension(named)
            or (called.receiver.group if called.receiver is not None else "")
            or (group.group if group and group.group in run.coordinates else "")
        )
        return run.number(kind or names.RANK_CALLS[last])
    if last == "rank" and called.receiver is not None and not called.args:
        return run.number()
    if (
        last.startswith("get_")
        and last.endswith("_rank")
        and "node_rank" not in last.replace("get_node_local_rank", "")
    ):
        return run.number(names.dimension(last) or ("local" if "local" in last else "rank"))
    if last.startswith("is_pipeline_"):
        number = run.coordinates["pp"]
        return constant(number == 0 if "first" in last else number > 0, frozenset({RANK}))
    if names.FIRST.search(last):
        return run.first()
    if last in names.LAST:
        return constant(run.coordinates["rank"] == run.world - 1, frozenset({RANK}))
    if last in names.WORLD_NAMES:
        return (
            run.world_size() if group is None or group.const is None or group.group == "world" else Value(called.key())
        )
    if last.startswith("get_") and last.endswith("group"):
        named = group.const if group and isinstance(group.const, str) else last
        key = (
            ("mesh-group", called.receiver.key)
            if called.receiver is not None and last == "get_group" and not called.args
            else called.key()
        )
        return Value(
            key,
            group=names.dimension(str(named))
            or (called.receiver.group if called.receiver is not None else "")
            or ("world" if "world" in last or "default" in last else ""),
        )
    if last in (
        "is_initialized",
        "is_available",
        "is_dist_initialized",
        "is_dist_avail_and_initialized",
        "is_torchelastic_launched",
    ):
        return constant(True) if last != "is_available" or "dist" in called.name else Value(called.key())
    if last in ("getenv", "get") and called.name in ("os.getenv", "os.environ.get") and called.args:
        name = called.args[0].const
        return environment(run, name, called.key()) if isinstance(name, str) else None
    return None


def _wrapped_module(run: Run, called: Called) -> Value | None:
    """Forward, backward, state_dict and compute of what is wrapped."""
    func, receiver, last, node = called.func, called.receiver, called.last, called.node
    if is_wrapped(func):
        run.emit_call(node, forward_op(func), name=run.source.dotted(node.func).lstrip("$"))
        return run.fresh(Value(called.key(), own="its batch", tags=frozenset({OUTPUT, CALLED})))
    if receiver is None:
        return None
    if is_wrapped(receiver) and last in ("forward", "generate"):
        run.emit_call(node, forward_op(receiver), name=last)
        return run.fresh(Value(called.key(), own="its batch", tags=frozenset({OUTPUT, CALLED})))
    if last == "backward" and OUTPUT in receiver.tags:
        if not run.no_sync:
            run.emit_call(node, "backward", name="backward")
        return constant(None)
    if FSDP in receiver.tags and last in ("state_dict", "clip_grad_norm_", "load_state_dict"):
        run.emit_call(node, f"{last} of a sharded model", name=last)
        return Value(called.key())
    if METRIC in receiver.tags and last == "compute":
        run.emit_call(node, "compute of a metric", name="compute")
        return Value(called.key())
    if is_wrapped(receiver) and last in ("unwrap", "unwrap_model"):
        return Value(called.key())
    return None


WRITES = {"torch.save": 1, "numpy.save": 0, "numpy.savez": 0, "safetensors.torch.save_file": 1}
READS = {"torch.load": 0, "numpy.load": 0, "numpy.memmap": 0, "safetensors.torch.load_file": 0}


def _file_operation(run: Run, called: Called) -> Value | None:
    """Files that are written and read: what one rank writes, others may read too early."""
    name, at = called.name, None
    if name in WRITES:
        at, writes = WRITES[name], True
    elif name in READS:
        at, writes = READS[name], False
    elif (
        called.last == "save"
        and called.receiver is not None
        and ACCELERATOR in called.receiver.tags
        and len(called.args) > 1
    ):
        at, writes = 1, True
    elif called.last == "save_pretrained" and called.args:
        at, writes = 0, True
    elif called.name == "$open" and called.args:
        mode = called.argument(1, "mode")
        if mode is None or isinstance(mode.const, str):
            at, writes = 0, mode is not None and "w" in mode.const
    elif called.last == "from_pretrained" and called.args:
        at, writes = 0, False
    if at is None or at >= len(called.args):
        return None
    torch = name in ("torch.save", "safetensors.torch.save_file") or called.last == "save"
    run.steps.append(Save(writes, called.args[at].key, run.places(called.node), run.guard, torch))
    if called.last in ("save_pretrained", "from_pretrained"):
        return None
    return Value(called.key())


def _own_state(run: Run, called: Called) -> Value | None:
    """Clocks, the file system, memory: what another rank may see otherwise."""
    if names.CLOCK.search(called.name):
        return Value(called.key(), own="its clock")
    if names.FILES.search(called.name) or (called.last in names.FILE_METHODS and not called.args and called.receiver):
        return Value(called.key(), own=FILE_SYSTEM)
    if names.LISTINGS.search(called.name) or (called.last in ("glob", "rglob", "iterdir") and called.receiver):
        parts = {"uneven"} if any(RANK in value.tags for value in called.values) else set()
        return Value(called.key(), own=FILE_SYSTEM, tags=frozenset({CONTAINER, OWN_LENGTH, *parts}))
    if names.MEMORY.search(called.name):
        return Value(called.key(), own="its memory")
    word = called.receiver.dotted.rsplit(".", 1)[-1].lstrip("$") if called.receiver is not None else ""
    if word in ("env", "envs", "environment") and called.last in ("step", "reset"):
        return Value(called.key(), own="its environment")
    if names.RANDOM.search(called.name) and not run.source.seeds:
        return Value(called.key(), own="its random numbers")
    if called.last in names.THREADS and not called.args and called.receiver is not None:
        if "Queue" in called.receiver.dotted or "Event" in called.receiver.dotted or "Popen" in called.receiver.dotted:
            return Value(called.key(), own="its threads and processes")
    return None


def _unknown(run: Run, called: Called) -> Value:
    """Nothing is known of the function: its result is this rank's own if it was made from that, unless its name
    speaks of all ranks."""
    receiver, last, values = called.receiver, called.last, called.values
    _forget(run, called)
    if run.guard is not None and names.WRITERS.search(last):
        run.steps += [
            Save(True, value.key, run.places(called.node), run.guard) for value in called.values if not value.known
        ]
    if receiver is not None and last in KEEPS_TAGS:
        return Value(
            ("as", receiver.key, last), own=receiver.own, tags=receiver.tags, cls=receiver.cls, dotted=receiver.dotted
        )
    everything = (*values, receiver) if receiver is not None else values
    tags = set(tags_of(everything, frozenset({OUTPUT}))) | _lengths(called)
    if receiver is not None or called.name.startswith("torch."):
        subject = (receiver,) if receiver is not None and not called.name.startswith("torch.") else called.args
        tags |= tags_of(subject, frozenset({PARAMETER})) if last not in NO_CONTENT else set()
    if last[:1].isupper() or last in ("items", "values"):
        tags |= tags_of(everything, frozenset({METRIC}))
    if last == "DataLoader" or last.endswith("DataLoader"):
        tags.add(LOADER)
        if (drop := called.words.get("drop_last")) and drop.const is True:
            tags.discard("strided")
    if called.name.startswith("torchmetrics.") and last[:1].isupper() and _syncs(called):
        tags.add(METRIC)
    if last.endswith("Trainer"):
        tags.add(TRAINER if "lightning" in called.name else HF_TRAINER)
    if called.name.startswith("os.path.") or called.name == "pathlib.Path":
        return Value(
            ("path", called.name, tuple(value.key for value in called.values)),
            tags=tags_of(called.values, frozenset({RANK, BY_RANK})),
        )
    if last in names.SHAPES:
        return Value(called.key(), tags=frozenset({SHAPE} if receiver is not None and receiver.own else ()))
    own = next(
        (value.own for value in everything if value.own and (value.own != FILE_SYSTEM or last in names.KEEP_LISTING)),
        None,
    )
    if own is None and PARAMETER in tags and last in CONTENT:
        own = "its batch"
    if own and any(is_wrapped(value) for value in called.values) and not PARTS.search(called.name):
        tags |= {OUTPUT}  # a loss function that is given the model
    if own and receiver is not None and not names.AGREES.search(last):
        run.state.attributes[receiver.key, FED] = Value(("fed",), own=own)
    elif own and receiver is None:
        run.state.attributes[called.func.key, FED] = Value(("fed",), own=own)
    if names.AGREES.search(last) and last not in names.VALUES:
        own = None
    if own and last == "get":
        may_lack = any(isinstance(v.const, str) and names.MAY_LACK.search(v.const) for v in called.args)
        tags |= {MAY_LACK} if may_lack else set()
    elif own and last not in ("items", "values", "keys"):
        tags.add(CALLED)
    if last in ("items", "values") and receiver is not None:
        tags |= receiver.tags & {ELEMENT}
    return run.fresh(Value(called.key(), own=own, tags=frozenset(tags), dotted=f"{called.name}()"))


def _lengths(called: Called) -> set[str]:
    """Whether a part per rank of unequal length goes through: datasets, loaders and their chained calls."""
    last, receiver = called.last, called.receiver
    if last in ("split_dataset_by_node", "split_by_node"):
        return {"uneven"}
    if last == "shard" and any(RANK in value.tags for value in called.values):
        return {"strided"}
    if receiver is not None and receiver.tags & LENGTHS:
        if last == "filter":
            return {"uneven"}
        return set() if last in ENDS_PARTS else set(receiver.tags & LENGTHS)
    if last == "random_split" and any(WORLD in value.tags for value in called.values):
        return {"split"}
    if ("dataset" in last.lower() or last in ("open", "load", "read_parquet", "read_csv")) and any(
        BY_RANK in value.tags or (RANK in value.tags and (isinstance(value.const, str) or not value.known))
        for value in called.values
    ):
        return {"uneven"}
    if last[:1].isupper() or last in PASSES_ON:
        found = set(tags_of(called.values, LENGTHS))
        if any(value.dotted.endswith("split_by_node") for value in called.values):
            if not ((resampled := called.words.get("resampled")) and resampled.const is True):
                found.add("uneven")
        return found
    return set()


def _syncs(called: Called) -> bool:
    if (syncs := called.words.get("sync_on_compute")) is not None and syncs.const is False:
        return False
    if called.last == "MetricCollection":
        return any(METRIC in value.tags for value in called.values) or not called.values
    return True


def _forget(run: Run, called: Called) -> None:
    """A list that is handed to a function of which nothing is known, or filled: what was in it no longer counts."""
    node = called.node
    targets = list(node.args) if called.last not in ("len", "print") else []
    filled = isinstance(node.func, ast.Attribute) and called.last in FILLS
    for each in targets:
        value = run.state.variables.get(each.id) if isinstance(each, ast.Name) else None
        if isinstance(each, ast.Name) and value is not None and value.items is not None:
            run.state.variables[each.id] = Value(
                ("forgotten", place_of(node), value.key), own=value.own, tags=value.tags - {RANK}
            )
    if filled and isinstance(node.func, ast.Attribute) and called.receiver is not None:
        _filled(run, node.func.value, called)


def _filled(run: Run, target: ast.expr, called: Called) -> None:
    from whichrank.lint.statements import assign

    receiver = called.receiver
    assert receiver is not None
    own = next((value.own for value in called.values if value.own), None) or (run.whys[-1] if run.whys else None)
    kept = None if called.last in ("fill_", "copy_", "zero_", "set_") else receiver.own
    if isinstance(target, ast.Name | ast.Attribute):
        tags = (receiver.tags - {RANK, SHARDED}) | tags_of(called.values, frozenset({OUTPUT, METRIC}))
        if called.last in ADDS:
            tags |= {CONTAINER} | ({OWN_LENGTH} if run.whys or LENGTHS & tags_of(called.values, LENGTHS) else set())
        key = ("filled", place_of(called.node))
        assign(run, target, run.fresh(Value(key, own=own or kept, tags=tags, cls=receiver.cls)))
