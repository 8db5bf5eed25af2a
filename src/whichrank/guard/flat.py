"""Any object as lines `path = value`, the same wherever it holds the same: what can be compared over ranks."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

DEPTH = 12
LINES = 200_000
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def flat(obj: Any, values: bool = False) -> list[tuple[str, str]]:
    """(path, value), in an order of its own for mappings and sets, in theirs for the rest.

    >>> flat({"lr": 0.1, "betas": (0.9, 0.95)})
    [('.betas', 'tuple of 2'), ('.betas[0]', '0.9'), ('.betas[1]', '0.95'), ('.lr', '0.1')]
    """
    lines: list[tuple[str, str]] = []
    for line in _walk("", obj, values, 0, set()):
        lines.append(line)
        if len(lines) >= LINES:
            lines.append(("…", "more than is compared"))
            break
    return lines


def _walk(path: str, obj: Any, values: bool, depth: int, above: set[int]) -> Iterator[tuple[str, str]]:
    if obj is None or isinstance(obj, (bool, int, float, complex, str, bytes, enum.Enum)):
        yield path, _plain(obj)
    elif depth > DEPTH or id(obj) in above:
        yield path, type(obj).__name__
    else:
        yield from _inner(path, obj, values, depth + 1, above | {id(obj)})


def _inner(path: str, obj: Any, values: bool, depth: int, above: set[int]) -> Iterator[tuple[str, str]]:
    known = _of_torch(path, obj, values)
    if known is not None:
        yield from known
    elif isinstance(obj, Mapping):
        for key, value in sorted(((str(key), value) for key, value in obj.items()), key=lambda pair: pair[0]):
            yield from _walk(f"{path}.{key}", value, values, depth, above)
        if not obj:
            yield path, "empty"
    elif isinstance(obj, (set, frozenset)):
        yield path, "{" + ", ".join(sorted(map(repr, obj))) + "}"
    elif isinstance(obj, (list, tuple)):
        yield path, f"{type(obj).__name__} of {len(obj)}"
        for index, value in enumerate(obj):
            yield from _walk(f"{path}[{index}]", value, values, depth, above)
    elif hasattr(obj, "tobytes") and hasattr(obj, "dtype"):  # numpy
        yield path, f"{obj.dtype} {getattr(obj, 'shape', '')} {_digest(obj.tobytes())}"
    elif isinstance(obj, type) or (callable(obj) and not dataclasses.is_dataclass(obj)):
        yield path, str(getattr(obj, "__qualname__", "")) or type(obj).__name__
    else:
        yield from _own(path, obj, values, depth, above)


def _own(path: str, obj: Any, values: bool, depth: int, above: set[int]) -> Iterator[tuple[str, str]]:
    """The fields of an object; without any, how it shows itself, but for its address."""
    try:
        fields = dict(vars(obj))
    except TypeError:
        yield path, ADDRESS.sub("", repr(obj))[:200]
        return
    yield path or "type", type(obj).__name__
    yield from _walk(path, fields, values, depth, above)


def _plain(obj: Any) -> str:
    text = repr(obj)
    return text if len(text) <= 200 else f"{text[:80]}… {len(text)} long {_digest(text.encode('utf-8', 'replace'))}"


def _of_torch(path: str, obj: Any, values: bool) -> Iterator[tuple[str, str]] | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(obj, torch.nn.Module):
        return _module(path, obj, values)
    if isinstance(obj, torch.Tensor):
        return iter([(path, _tensor(obj, True))])
    if isinstance(obj, torch.Generator):
        return iter([(path, f"seed {obj.initial_seed()} state {_digest(bytes(obj.get_state().tolist()))}")])
    if isinstance(obj, torch.optim.Optimizer):
        groups = [{**group, "params": len(group["params"])} for group in obj.param_groups]
        return _walk(path or type(obj).__name__, groups, values, 1, set())
    return None


def _module(path: str, module: Any, values: bool) -> Iterator[tuple[str, str]]:
    """In the order that DistributedDataParallel takes them in: it has to be the same, too."""
    start = f"{path}." if path else ""
    for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for index, (name, tensor) in enumerate(tensors):
            grad = ", trained" if tensor.requires_grad else ""
            yield f"{start}{name}", f"{kind} {index}: {_tensor(tensor, values)}{grad}"


def _tensor(tensor: Any, values: bool) -> str:
    text = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    if values and not tensor.is_meta:
        torch = sys.modules["torch"]
        with torch.no_grad():
            plain = tensor.detach().to("cpu").contiguous().reshape(-1)
            text += " " + _digest(memoryview(plain.view(torch.uint8).numpy()) if plain.numel() else b"")
        if tensor.numel() == 1:
            text += f" ({plain.item()!r})"
    return text


def _digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
