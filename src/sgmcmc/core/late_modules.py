"""Modules of other packages under a name of ours, imported when they are asked for: `from sgmcmc.distributions import Normal`."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Same(Loader):
    """Loads a module by importing it under its own name: it is one object, its classes are the same."""

    def __init__(self, original: str) -> None:
        self._original = original

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._module = import_module(self._original)
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put ours there


class LateModules(MetaPathFinder):
    """Finds modules by other names, with all that is below them."""

    def __init__(self, originals: Mapping[str, str]) -> None:
        self._originals = originals

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        for name, original in self._originals.items():
            if fullname == name or fullname.startswith(f"{name}."):
                return ModuleSpec(fullname, _Same(original + fullname[len(name) :]))
        return None


def name_modules(originals: Mapping[str, str]) -> None:
    """From now on, modules are found by these names too."""
    sys.meta_path.insert(0, LateModules(originals))
