"""What is left at a default that ends in a hang: no timeout, use_reentrant unset, the cache on while recomputing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from whichrank.lint.diverge import Parting
from whichrank.lint.run import place_of
from whichrank.lint.source import FunctionNode, Source

CHECKPOINTS = frozenset({"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"})
ARGUMENTS = re.compile(r"(^|\.)(\w*TrainingArguments|(SFT|DPO|GRPO|PPO|KTO|ORPO|Reward)Config)$")
KBIT = frozenset({"prepare_model_for_kbit_training", "prepare_model_for_int8_training"})
WRAPS = frozenset({"apply_activation_checkpointing", "prepare_model_for_kbit_training"})
ENABLES = WRAPS | {"gradient_checkpointing_enable", "enable_gradient_checkpointing"}
INFERENCE = re.compile(r"generat|sampl|infer|eval|predict|decod|valid|test|rollout")
GUARDS = frozenset({"no_grad", "inference_mode"})


def partings(source: Source) -> Iterator[Parting]:
    aliases = _aliases(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield from _timeout(source, node)
            yield from _reentrant(source, node, aliases)
    yield from cache(source)


def _word(node: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in node.keywords if word.arg == name), None)


def _open(node: ast.Call) -> bool:
    """It takes `**options`, which may hold anything."""
    return any(word.arg is None for word in node.keywords) or any(isinstance(each, ast.Starred) for each in node.args)


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _timeout(source: Source, node: ast.Call) -> Iterator[Parting]:
    name = source.dotted(node.func)
    if not name.startswith("torch.distributed.") or not name.endswith(".init_process_group") or _open(node):
        return
    backend = _word(node, "backend") or (node.args[0] if node.args else None)
    if _is_text(backend, "fake"):
        return  # communicates with nobody
    if isinstance(size := _word(node, "world_size"), ast.Constant) and size.value == 1:
        return
    given = _word(node, "timeout")
    if (given is None and len(node.args) < 3) or _is(given, None):
        yield Parting("no-timeout", place_of(node), "init_process_group")


# --- use_reentrant


def _aliases(source: Source) -> dict[str, str]:
    """`recompute = torch.utils.checkpoint.checkpoint`."""
    found = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, ast.Name | ast.Attribute) and source.dotted(node.value) in CHECKPOINTS:
                found[f"${node.targets[0].id}"] = source.dotted(node.value)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
            if isinstance(node.value, ast.Name | ast.Attribute) and source.dotted(node.value) in CHECKPOINTS:
                found[source.dotted(node.targets[0])] = source.dotted(node.value)
    return found


def _reentrant(source: Source, node: ast.Call, aliases: dict[str, str]) -> Iterator[Parting]:
    name = source.dotted(node.func)
    name = aliases.get(name, name)
    last = name.rsplit(".", 1)[-1]
    if _open(node):
        return
    unset = False
    if name in CHECKPOINTS:
        unset = _word(node, "use_reentrant") is None
    elif last == "gradient_checkpointing_enable" and isinstance(node.func, ast.Attribute):
        unset = not _sets(_word(node, "gradient_checkpointing_kwargs") or (node.args[0] if node.args else None))
    elif ARGUMENTS.search(name) and _is(_word(node, "gradient_checkpointing"), True):
        last = "gradient_checkpointing=True"
        unset = not _sets(_word(node, "gradient_checkpointing_kwargs"))
    elif last in KBIT and not _is(_word(node, "use_gradient_checkpointing"), False):
        unset = not _sets(_word(node, "gradient_checkpointing_kwargs"))
    elif name.endswith("partial") and node.args and source.dotted(node.args[0]) in CHECKPOINTS:
        last = "partial(checkpoint)"
        words = (word.arg for call in ast.walk(source.tree) if isinstance(call, ast.Call) for word in call.keywords)
        unset = "use_reentrant" not in words
    if unset:
        yield Parting("reentrant-unset", place_of(node), last)


def _sets(options: ast.expr | None) -> bool:
    """Options that say use_reentrant, or of which it can't be seen."""
    if options is None or _is(options, None):
        return False
    if isinstance(options, ast.Dict):
        return None in options.keys or any(_is_text(key, "use_reentrant") for key in options.keys)
    if isinstance(options, ast.Call) and isinstance(options.func, ast.Name) and options.func.id == "dict":
        return _open(options) or _word(options, "use_reentrant") is not None
    return True


def _is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


# --- use_cache


def cache(source: Source) -> Iterator[Parting]:
    """use_cache=True on a model that the same function, class or file trains with recomputed activations."""
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    enabled = [node for node in calls if _last(node) in ENABLES]
    arguments = [
        node for node in calls
        if ARGUMENTS.search(source.dotted(node.func)) and _is(_word(node, "gradient_checkpointing"), True)
    ]  # fmt: skip
    for node in calls:
        if _is(_word(node, "gradient_checkpointing"), True) and _is(_word(node, "use_cache"), True):
            yield Parting("cache-with-checkpointing", place_of(_word(node, "use_cache") or node), _last(node))
    if not enabled and not arguments:
        return
    if any(_last(node) == "gradient_checkpointing_disable" for node in calls):
        return  # switched for generation and back: which is on when can't be told from here
    models = {ast.unparse(node.func.value) for node in enabled if isinstance(node.func, ast.Attribute)}
    models |= {ast.unparse(node.args[0]) for node in enabled if node.args and _last(node) in WRAPS}
    if not any(True for node in ast.walk(source.tree) if _switched_off(node)):
        for node in calls:
            word = _word(node, "use_cache")
            if _is(word, True) and (
                _last(node) in ("from_pretrained", "from_config") or _last(node).endswith("Config")
            ):
                yield Parting("cache-with-checkpointing", place_of(_keyword(node, "use_cache")), "the model")
    for function, trains in _functions(source):
        inside = list(ast.walk(function))
        yield from _loaded(inside, models, bool(arguments))
        yield from _switched(inside, models, bool(arguments))
        if trains:
            yield from _asked(inside, models, bool(arguments))


def _functions(source: Source) -> Iterator[tuple[ast.AST, bool]]:
    """Functions, the module's own statements, and whether what runs there has gradients."""
    yield ast.Module([each for each in source.tree.body if not isinstance(each, FunctionNode | ast.ClassDef)], []), True
    for node in ast.walk(source.tree):
        if isinstance(node, FunctionNode):
            guarded = any(
                GUARDS & set(source.dotted(each).replace("()", "").split(".")) for each in _plain(node.decorator_list)
            )
            yield node, not guarded and not INFERENCE.search(node.name)


def _plain(decorators: list[ast.expr]) -> list[ast.expr]:
    return [each.func if isinstance(each, ast.Call) else each for each in decorators]


def _keyword(node: ast.Call, name: str) -> ast.AST:
    return next(word for word in node.keywords if word.arg == name)


def _switched_off(node: ast.AST) -> bool:
    """`….use_cache = False`, or `use_cache=False`."""
    if isinstance(node, ast.Assign):
        return _is(node.value, False) and any(getattr(target, "attr", "") == "use_cache" for target in node.targets)
    return isinstance(node, ast.keyword) and node.arg == "use_cache" and _is(node.value, False)


def _last(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _off(inside: list[ast.AST], model: str) -> bool:
    return any(line for line, on in _switches(inside, model) if not on)


def _switches(inside: list[ast.AST], model: str) -> list[tuple[int, bool]]:
    """Lines with `model.config.use_cache = …`."""
    found = []
    for node in inside:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if ast.unparse(target) in (
                    f"{model}.use_cache",
                    f"{model}.config.use_cache",
                    f"{model}.module.config.use_cache",
                ):
                    found.append((node.lineno, bool(node.value.value)))
    return sorted(found)


def _loaded(inside: list[ast.AST], models: set[str], by_arguments: bool) -> Iterator[Parting]:
    """model = ….from_pretrained(…, use_cache=True)."""
    for node in inside:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
            continue
        name = ast.unparse(node.targets[0])
        word = next((word for word in node.value.keywords if word.arg == "use_cache"), None)
        if word is None or not _is(word.value, True) or _off(inside, name):
            continue
        loads = _last(node.value) in ("from_pretrained", "from_config") or _last(node.value).endswith("Config")
        made_here = any(
            isinstance(each, ast.Assign) and isinstance(each.value, ast.Call) and ast.unparse(each.targets[0]) in models
            and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(each.value))
            for each in inside
        )  # fmt: skip
        if name in models or made_here or (by_arguments and loads):
            yield Parting("cache-with-checkpointing", (word.lineno, word.col_offset + 1), name)


def _switched(inside: list[ast.AST], models: set[str], by_arguments: bool) -> Iterator[Parting]:
    """model.config.use_cache = True before the training, not after it."""
    trains = [
        node.lineno for node in inside if isinstance(node, ast.Call) and _last(node) in ("train", "backward", "fit")
    ]
    names = {
        ast.unparse(target.value).removesuffix(".config")
        for node in inside if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "use_cache"
    }  # fmt: skip
    for name in names:
        switches = _switches(inside, name)
        configures = "config" in name and any(
            ast.unparse(each) in models for each in inside if isinstance(each, ast.Name | ast.Attribute)
        )
        if not (name in models or by_arguments or configures) or not switches or any(not on for _, on in switches):
            continue
        line = switches[-1][0]
        if (not by_arguments and not any(each < line for each in trains)) or any(each > line for each in trains):
            node = next(node for node in inside if isinstance(node, ast.Assign) and node.lineno == line)
            yield Parting("cache-with-checkpointing", place_of(node), name)


def _asked(inside: list[ast.AST], models: set[str], by_arguments: bool) -> Iterator[Parting]:
    """model(…, use_cache=True) in a forward with gradients."""
    silent = {
        id(each)
        for node in inside if isinstance(node, ast.With)
        if any(isinstance(item.context_expr, ast.Call) and _last(item.context_expr) in GUARDS for item in node.items)
        for each in ast.walk(node)
    }  # fmt: skip
    for node in inside:
        if isinstance(node, ast.Call) and id(node) not in silent and _is(_word(node, "use_cache"), True):
            called = ast.unparse(node.func)
            if called in models or (by_arguments and called.rsplit(".", 1)[-1] == "model"):
                yield Parting("cache-with-checkpointing", place_of(node), ast.unparse(node.func))
