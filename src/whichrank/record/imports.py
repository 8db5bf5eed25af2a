"""Hooks that are put into a module when it is imported: nothing is imported for their sake, torch least of all."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[[Any], None]


class Finder(MetaPathFinder):
    """Finds nothing itself: it lets the others find, and asks the loader to call the patch once it is done."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self.patches = patches
        self.busy = False

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        patch = self.patches.get(name)
        if patch is None or self.busy:
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        if spec is not None and spec.loader is not None:
            _after(spec.loader, patch)
        return spec


def _after(loader: Any, patch: Patch) -> None:
    """The loader stays what it is, for whoever asks it for source or resources; only this one execution is followed."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        try:
            del loader.exec_module
        except AttributeError:
            pass
        execute(module)
        safely(patch, module)

    try:
        loader.exec_module = exec_module
    except (AttributeError, TypeError):
        pass


def safely(patch: Patch, module: ModuleType) -> None:
    """A hook that does not fit this version of a library is no reason for the training to stop."""
    try:
        patch(module)
    except Exception:
        pass


def install(patches: dict[str, Patch]) -> None:
    """Patch what is there already, and the rest when it comes."""
    for name, patch in patches.items():
        module = sys.modules.get(name)
        if module is not None:
            safely(patch, module)
    sys.meta_path.insert(0, Finder(patches))
