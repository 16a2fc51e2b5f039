"""When two values make the same program: what functions and objects are made of, as keys to be compared.

Functions have the same key where they have the same code, captured values, defaults and global names, whatever objects they are.
What cannot be looked into is the same as nothing else (or, of a function that was traced as well, as itself alone): then a
program is compiled once more, and never shared by mistake.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import itertools
import os
import sys
import sysconfig
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MOST_PARTS = 20_000
"""Values looked at for one key: what has more parts is not looked into."""

PLAIN = (types.NoneType, types.EllipsisType, bool, int, float, complex, str, bytes, range, slice)
CALLBACKS = frozenset({"pure_callback", "io_callback", "debug", "callback"})
CALLING_BACK = ("jax._src.debugging", "jax._src.callback")
"""Names by which functions call Python from compiled code: these are known by being themselves, or others would hear of it."""


def sameness(value: Any) -> Hashable:
    """What a value is made of: two values with equal keys may stand for each other in a compiled program."""
    return _looked_at(value, lambda _: object())


def sameness_of_traced(function: Callable[..., Any] | None, traced: str) -> Hashable:
    """The same of a function of which it is also known what JAX makes of it: `traced` shows if something changed inside of what
    cannot be looked into, so that it is known by being itself.
    """
    return traced, _looked_at(function, itself)


def itself(value: Any) -> Hashable:
    """What is the same as this object alone; as nothing, where that cannot be known without keeping it alive."""
    try:
        return _Itself(value)
    except TypeError:  # it knows no weak references
        return object()


class Recent:
    """The last so many of some values, by what they are made of: what was asked for longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most, self._values, self._lock = most, OrderedDict[Hashable, Any](), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of a key, made where there is none."""
        with self._lock:
            value = self._values.pop(key) if key in self._values else make()
            self._values[key] = value
            if len(self._values) > self._most:
                self._values.popitem(last=False)
            return value

    def drop(self, key: Hashable) -> None:
        """Forget a value: whoever has it may go on with it."""
        with self._lock:
            self._values.pop(key, None)


@dataclass(frozen=True)
class Keyed:
    """A value that is known by its key."""

    key: Hashable
    value: Any = field(compare=False)


def digest(array: Any) -> tuple[Hashable, ...]:
    """An array's type, shape and contents, short."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return (str(array.dtype), *digest(jax.random.key_data(array)))
    plain = np.ascontiguousarray(array)
    hashed = hashlib.blake2b(plain.view(np.uint8).data if plain.size else b"", digest_size=16).hexdigest()
    return str(plain.dtype), np.shape(array), bool(getattr(array, "weak_type", False)), hashed


def _looked_at(value: Any, unknown: Callable[[Any], Hashable]) -> Hashable:
    try:
        return _Look(unknown).key(value)
    except Exception:  # whatever objects of the user's do when they are looked at
        return object()


class _Itself:
    """An object as itself. It is not kept alive for that."""

    def __init__(self, value: Any) -> None:
        self._reference, self._hash = weakref.ref(value), id(value)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = self._reference()
        return mine is not None and isinstance(other, _Itself) and mine is other._reference()

    def __hash__(self) -> int:
        return self._hash


class _Bare:
    """An object that is all in its `__dict__`: others of its size are too."""


class _Look:
    """One look at a value and all that it is made of. `unknown` makes the key of what cannot be looked into."""

    def __init__(self, unknown: Callable[[Any], Hashable]) -> None:
        self._unknown = unknown
        self._seen: dict[int, tuple[int, Any]] = {}  # with the values themselves: an address may be used again

    def key(self, value: Any) -> Hashable:
        """The key of one value."""
        if type(value) in PLAIN or isinstance(value, np.dtype):
            return type(value), repr(value)  # 0.0 and -0.0, 1 and True are not the same
        if type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic | jax.Array):
            return self._array(value)
        if isinstance(value, Enum):
            return "member", _Itself(type(value)), value.name
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if id(value) in self._seen:
            return "seen", self._seen[id(value)][0]
        if len(self._seen) > MOST_PARTS:
            return object()
        self._seen[id(value)] = len(self._seen), value
        return self._compound(value)

    def _compound(self, value: Any) -> Hashable:
        """That of a value with parts."""
        kind = type(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.CodeType):
            return self._code(value)
        if _named(value):
            module = getattr(value, "__module__", None)
            return "named", kind, module, value.__name__, self._unknown(value) if module in CALLING_BACK else None
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return "method", self.key(value.__func__), self.key(value.__self__)
        if isinstance(value, types.BuiltinFunctionType):
            return "builtin", value.__name__, self.key(value.__self__)
        if isinstance(value, partial):
            return self.key(kind), self._all(value.func, value.args, value.keywords, *_beside(value))
        if isinstance(value, tuple | list):
            return self.key(kind), self._all(*value), self._all(*_beside(value))
        if isinstance(value, dict):
            return self.key(kind), self._all(*value), self._all(*value.values()), self._all(*_beside(value))
        if kind in (set, frozenset) and all(type(one) in PLAIN for one in value):
            return kind, frozenset(self._all(*value))
        return self._object(value)

    def _all(self, *values: Any) -> tuple[Hashable, ...]:
        return tuple(self.key(value) for value in values)

    def _array(self, value: Any) -> Hashable:
        try:
            return "array", isinstance(value, jax.Array), digest(value)
        except (TypeError, ValueError, RuntimeError, jax.errors.JAXTypeError):  # of objects, traced, deleted, of other processes
            return object()

    def _object(self, value: Any) -> Hashable:
        kind = type(value)
        inner = getattr(value, "__wrapped__", None)
        if kind.__name__ == "PjitFunction" and inner is not None:
            return "jit", self.key(inner)
        if is_dataclass(value):
            parts = {one.name: getattr(value, one.name, None) for one in fields(value)} | getattr(value, "__dict__", {})
        elif kind is types.SimpleNamespace or (kind.__basicsize__ == _Bare.__basicsize__ and (_ours(kind) or not _library(kind))):
            parts = vars(value)
        else:
            return self._unknown(value)
        lasting = {name: part for name, part in parts.items() if not _computed(kind, name)}
        return self.key(kind), tuple(lasting), self._all(*lasting.values())

    def _function(self, function: types.FunctionType) -> Hashable:
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        captured = self._all(*cells), self._all(function.__defaults__, function.__kwdefaults__)
        code = self.key(function.__code__)
        if _is_library(function.__code__.co_filename):
            return "function", code, captured
        calls_back = not CALLBACKS.isdisjoint(itertools.chain(*_mentioned(function.__code__)))
        return "function", code, captured, self._globals(function), self._unknown(function) if calls_back else None

    def _code(self, code: types.CodeType) -> Hashable:
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        return "code", code.co_code, code.co_exceptiontable, names, counts, self._all(*code.co_consts)

    def _globals(self, function: types.FunctionType) -> tuple[Hashable, ...]:
        """What the global names in a function stand for now, and the attributes that it may take from modules of the user's."""
        found: list[Hashable] = []
        names, attributes = _mentioned(function.__code__)
        for name in names:
            if name not in function.__globals__:
                found.append((name, hasattr(builtins, name)))
                continue
            value = function.__globals__[name]
            found.append((name, self.key(value)))
            if isinstance(value, types.ModuleType):
                found.append(self._module(value, attributes))
        return tuple(found)

    def _module(self, module: types.ModuleType, attributes: tuple[str, ...], *above: types.ModuleType) -> tuple[Hashable, ...]:
        """What these names stand for in a module of the user's, and in those inside it."""
        if _in_a_library(module.__name__) or module in above:
            return ()
        inside = [(name, getattr(module, name)) for name in attributes if hasattr(module, name)]
        modules = (value for _, value in inside if isinstance(value, types.ModuleType))
        deeper = tuple(self._module(one, attributes, module, *above) for one in modules)
        return tuple((name, self.key(value)) for name, value in inside), deeper

    def _class(self, kind: type) -> Hashable:
        if _library(kind):
            return "class", kind.__module__, kind.__qualname__, _Itself(kind)
        inside = {name: value for name, value in vars(kind).items() if _written(name, value)}
        bases = self._all(*kind.__bases__)
        return "class", _Itself(kind), bases, tuple(inside), self._all(*map(_behind, inside.values()))


def _beside(value: Any) -> tuple[Any, ...]:
    """What a container of the user's own has beside its contents."""
    return tuple(item for pair in getattr(value, "__dict__", {}).items() for item in pair)


def _behind(value: Any) -> Any:
    """The functions of a property, a method of the class and the like."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget, value.fset
    return value.func if isinstance(value, cached_property) else value


def _written(name: str, value: Any) -> bool:
    """Whether what is in a class was written by whoever wrote the class."""
    if name.startswith("__"):
        return isinstance(value, types.FunctionType) and value.__code__.co_filename != "<string>"  # else a dataclass made it
    return not name.startswith("_abc_") and not isinstance(value, types.MemberDescriptorType)


def _computed(kind: type, name: str) -> bool:
    """Whether an attribute is one that follows from the others."""
    return isinstance(getattr(kind, name, None), cached_property)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # of a name that has no value yet
        return "empty"


@lru_cache(maxsize=1024)
def _mentioned(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The global names and the attributes that a function and those inside it mention."""
    names, attributes = set[str](), set[str]()
    for one in _codes(code):
        for instruction in dis.get_instructions(one):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(instruction.argval)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                attributes.add(instruction.argval)
    return tuple(sorted(names)), tuple(sorted(attributes))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


OURS = str(Path(__file__).parents[1]) + os.sep


@lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_library(file: str) -> bool:
    """Whether a file is a part of Python, of an installed package or of this one: it does not change while the process lives."""
    return file.startswith((OURS, "<frozen", *_library_folders())) or "site-packages" in file or "dist-packages" in file


def _in_a_library(module: str) -> bool:
    """Whether a module is one of these. What is run as a program is not, wherever it lies."""
    home = sys.modules.get(module)
    return module in sys.builtin_module_names or (module != "__main__" and _is_library(getattr(home, "__file__", None) or ""))


def _library(kind: type) -> bool:
    return _in_a_library(kind.__module__)


def _ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def _named(value: Any) -> bool:
    """Whether a function is a module-level one of a library, which its name says all about."""
    if isinstance(value, np.ufunc | jnp.ufunc):
        return any(getattr(module, getattr(value, "__name__", ""), None) is value for module in (np, jnp))
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not callable(value) or not _in_a_library(module):
        return False
    return getattr(sys.modules.get(module), name, None) is value
