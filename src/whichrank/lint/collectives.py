"""Which calls communicate, over which group, and what they make equal on all ranks."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from whichrank.lint import names
from whichrank.lint.run import Run
from whichrank.lint.trace import Peer
from whichrank.lint.values import (
    ACCELERATOR,
    DDP,
    ENGINE,
    FSDP,
    HF_TRAINER,
    LENGTHS,
    LOADER,
    SHARDED,
    TRAINER,
    UNEVEN,
    Value,
    constant,
)  # fmt: skip

if TYPE_CHECKING:
    from whichrank.lint.calls import Called

IN_PLACE = frozenset(["all_reduce", "allreduce", "broadcast", "broadcast_object_list"])
FILLS_FIRST = frozenset(["all_gather", "all_gather_object", "all_gather_into_tensor"])
KEEP_OWN = frozenset(
    ["reduce", "gather", "scatter", "gather_object", "scatter_object_list", "reduce_scatter", "all_to_all"]
)
ASSIGNABLE = (ast.Name, ast.Attribute)
PAIRS = {"send": (True, True), "recv": (False, True), "isend": (True, False), "irecv": (False, False)}


def answer(run: Run, called: Called) -> Value | None:
    """The value of a call that communicates, with its steps left in the trace; None for any other call."""
    if (wrapped := _wrapper(run, called)) is not None:
        return wrapped
    if (peer := _peer_to_peer(run, called)) is not None:
        return peer
    op = operation(run, called)
    if op is None:
        return None
    if op == "backward" and run.no_sync:
        return constant(None)
    group = _group(run, called)
    if op in ("new_group", "new_subgroups"):
        return _new_group(run, called, op)
    if (first := called.words.get("rank_zero_only")) is not None and first.const is True:
        with run.under(run.first()):
            if run.coordinates["rank"] == 0:
                run.emit_call(called.node, op, group, called.last)
        return constant(None)
    run.emit_call(called.node, op, group, called.last)
    return _result(run, called, op)


def operation(run: Run, called: Called) -> str | None:
    """The collective's name, or None."""
    name, last, receiver = called.name, called.last, called.receiver
    if last in names.ANYWHERE and not (last == "barrier" and name.startswith("threading.")):
        return last
    if last in names.FUNCTIONS and names.DISTRIBUTED.search(name):
        return last
    if names.CALLS_OF_ALL.search(name):
        return last
    if last == "synchronize" and names.DISTRIBUTED.search(name):
        return last
    word = (receiver.dotted.rsplit(".", 1)[-1].lstrip("$") if receiver is not None else "").lower()
    tags = receiver.tags if receiver is not None else frozenset()
    if receiver is None:
        return None
    if (ACCELERATOR in tags or word in ("accelerator", "fabric")) and last in names.METHODS["accelerator"]:
        return last
    if (ENGINE in tags or word in names.ENGINES) and last in names.METHODS["engine"]:
        return "step of the engine" if last == "step" else last
    if last in ("save_checkpoint", "load_checkpoint") and (
        word in names.ENGINES or (run.source.deepspeed and word != "self")
    ):
        return last
    if "zero-optimizer" in tags and last == "step":
        return "step of the engine"
    if last == "save_to" and run.source.nemo:
        return last
    if word == "strategy" and last in names.STRATEGY:
        return last
    return _trainers(run, called, word, tags)


def _trainers(run: Run, called: Called, word: str, tags: frozenset[str]) -> str | None:
    last = called.last
    lightning = TRAINER in tags or (word == "trainer" and run.source.lightning)
    if lightning and run.source.lightning and last in names.METHODS["trainer"]:
        return last
    cls = run.source.classes.get(called.receiver.cls or "") if called.receiver is not None else None
    theirs = (
        any(base.rsplit(".", 1)[-1].endswith("Trainer") for base in cls.bases)
        if cls
        else HF_TRAINER in tags or word == "trainer"
    )
    if theirs and run.source.transformers:
        if last in names.METHODS["hf-trainer"] or (last == "save_model" and run.source.sharded_trainer):
            return last
    if last in ("log", "log_dict") and (sync := called.words.get("sync_dist")) and sync.const is True:
        return "log with sync_dist"
    if last == "manual_backward":
        return "backward"
    return None


def _group(run: Run, called: Called) -> str:
    """`world` also for a group of which this rank's number was asked: its members are compared then."""
    group = called.words.get("group") or called.words.get("process_group")
    if group is None or group.const is None or group.group == "world":
        return "world"
    return group.group or ("world" if group.key in run.asked else "sub")


def _new_group(run: Run, called: Called, op: str) -> Value:
    ranks = called.argument(0, "ranks")
    detail: Hashable = ranks.const if ranks is not None and ranks.known else None
    run.emit_call(called.node, op, "world", called.last, detail)
    whole = ranks is None or ranks.const is None
    return run.fresh(Value(called.key(), group="world" if whole else ""))


def _result(run: Run, called: Called, op: str) -> Value:
    """What is equal afterwards, and what comes back."""
    if (op in IN_PLACE and called.args) or (op in FILLS_FIRST and called.args):
        run.agree(called.args[0])
    elif op in IN_PLACE | FILLS_FIRST:
        for word in ("tensor", "object_list", "tensor_list", "output_tensor"):
            if word in called.words:
                run.agree(called.words[word])
    if op in ("prepare", "setup"):
        return _prepared(run, called)
    if op in KEEP_OWN and called.receiver is not None and ACCELERATOR not in called.receiver.tags:
        own = next((value.own for value in called.values if value.own), None)
        return run.fresh(Value(called.key(), own=own))
    return run.fresh(Value(called.key(), tags=frozenset({UNEVEN}) if op == "init" else frozenset()))


def _prepared(run: Run, called: Called) -> Value:
    """Accelerate's and Fabric's wrapping: models communicate, loaders get equal parts unless that was switched off."""
    receiver = called.receiver
    uneven = receiver is not None and "uneven-batches" in receiver.tags
    model = {FSDP, SHARDED} if receiver is not None and "fsdp" in receiver.tags else {DDP}

    def one(value: Value) -> Value:
        if LOADER in value.tags or value.tags & LENGTHS:
            return replace(value, tags=(value.tags - LENGTHS) | ({UNEVEN, LOADER} if uneven else {LOADER}))
        return replace(value, key=("prepared", value.key), tags=value.tags | model, cls=None)

    made = [one(value) for value in called.args]
    if len(made) == 1:
        return made[0]
    return Value(called.key(), items=tuple(made))


def _wrapper(run: Run, called: Called) -> Value | None:
    """DDP(model), fully_shard(model), deepspeed.initialize(…), Accelerator(), Fabric()."""
    from whichrank.lint.statements import assign

    last, node = called.last, called.node
    if last in names.WRAPPERS and not called.name.startswith("$."):
        kind = names.WRAPPERS[last]
        tags = {DDP} if kind == "ddp" else {SHARDED, FSDP} if kind == "fsdp" else {SHARDED}
        run.emit_call(node, f"wrapping in {last}", name=last)
        inner = called.argument(0, "module")
        wrapped = Value(("wrapped", called.key()), tags=frozenset(tags))
        if last == "fully_shard" and node.args and inner is not None:
            wrapped = replace(inner, tags=inner.tags | tags)
            if isinstance(node.args[0], ASSIGNABLE):
                assign(run, node.args[0], wrapped)
        return wrapped
    if last == "ZeroRedundancyOptimizer":
        return Value(called.key(), tags=frozenset({"zero-optimizer"}))
    if called.name == "deepspeed.initialize":
        run.emit_call(node, "wrapping in DeepSpeed", name="deepspeed.initialize")
        return _deepspeed(run, called)
    if last in ("Accelerator", "Fabric", "PartialState") and (
        "accelerate" in called.name or "lightning" in called.name or called.name.startswith("$")
    ):
        return _accelerator(called)
    if last in ("unwrap_model", "unwrap"):
        return Value(called.key())
    if last == "setup_dataloaders":
        made = [replace(value, tags=(value.tags - LENGTHS) | {LOADER}) for value in called.args]
        return made[0] if len(made) == 1 else Value(called.key(), items=tuple(made))
    if last == "DataLoaderConfiguration" and (even := called.words.get("even_batches")) and even.const is False:
        return Value(called.key(), tags=frozenset({"uneven-batches"}))
    if last == "state_dict_type" and called.args and "torch.distributed" in called.name:
        if node.args and isinstance(node.args[0], ASSIGNABLE):
            assign(run, node.args[0], called.args[0].tagged(FSDP))
        return Value(called.key())
    if last == "convert_sync_batchnorm" and called.args:
        return called.args[0].tagged(DDP)
    if last == "checkpoint_wrapper" and called.args:
        return called.args[0]
    if called.name == "torch.compile" and called.args:
        return called.args[0]
    return None


def _deepspeed(run: Run, called: Called) -> Value:
    tags = {ENGINE, SHARDED} if names.ZERO_3.search(run.text) else {ENGINE, DDP}
    key = called.key()
    engine = Value((key, "engine"), tags=frozenset(tags))
    loader = Value((key, "loader"), tags=frozenset({LOADER}))
    return Value(key, items=(engine, Value((key, 1)), loader, Value((key, 3))))


def _accelerator(called: Called) -> Value:
    tags = {ACCELERATOR}
    even = called.words.get("even_batches")
    if (even is not None and even.const is False) or any("uneven-batches" in value.tags for value in called.values):
        tags.add("uneven-batches")
    strategy = called.words.get("strategy")
    if strategy is not None and (str(strategy.const).startswith("fsdp") or "FSDP" in strategy.dotted):
        tags.add("fsdp")
    return Value(called.key(), tags=frozenset(tags), dotted="$accelerator")


def _peer_to_peer(run: Run, called: Called) -> Value | None:
    """send, recv, isend, irecv of torch.distributed."""
    last = called.last
    if last == "batch_isend_irecv" and called.name.startswith(names.TORCH):
        return Value(called.key())
    if last == "P2POp" and called.name.startswith(names.TORCH) and called.args:
        op = called.args[0].dotted.rsplit(".", 1)[-1]
        peer, tag = called.argument(2, "peer"), called.argument(4, "tag")
    elif last in PAIRS and names.DISTRIBUTED.search(called.name):
        op = last
        peer, tag = called.argument(1, "dst" if PAIRS[op][0] else "src"), called.argument(3, "tag")
    else:
        return None
    if op not in PAIRS:
        return None
    number = peer.const if peer is not None and isinstance(peer.const, int) else None
    told = 0 if tag is None else tag.const if isinstance(tag.const, int) else None
    run.steps.append(Peer(*PAIRS[op][:1], number, PAIRS[op][1], run.places(called.node)[-1], told))
    return run.fresh(Value(called.key()))
