"""The house: which room may use which, what is public, and that it is documented."""

from __future__ import annotations

import ast
import inspect
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sgmcmc

SOURCE = Path(sgmcmc.__file__).parent
ROOMS = ["core", "rows", "problem", "algorithms", "results", "checkpoints", "run", "tune", "samplers", "data", "models"]
DOORS = ["testing", "__main__"]
"""Of one file each: nobody inside uses them."""

LOBBY = "__init__"
"""Imports what is public; only the doors use it."""

FLOORS = [*ROOMS, LOBBY, *DOORS]
MOST_ENTRIES = 14


def module_name(path):
    """`sgmcmc.run.loop`; of a folder, that of its `__init__`."""
    parts = ("sgmcmc", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {module_name(path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def typing_only(tree):
    """The nodes that exist for a type checker alone."""
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    guarded = (one for one in tests if isinstance(one.test, ast.Name) and one.test.id == "TYPE_CHECKING")
    return {id(node) for test in guarded for one in test.body for node in ast.walk(one)}


def imports(tree, known=TREES):
    """Modules of ours that a module uses when it is imported or run, imports inside functions included."""
    ignored = typing_only(tree)
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "sgmcmc")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sgmcmc":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in LATE:
            yield from (one.value for one in node.args if isinstance(one, ast.Constant) and str(one.value).startswith("sgmcmc."))


LATE = {"import_module", "_import_module"}


def room(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else LOBBY


def climbing(graph):
    """Imports of a room by one above which it does not stand."""
    floor = {name: number for number, name in enumerate(FLOORS)}
    pairs = ((module, used) for module, all_used in graph.items() for used in all_used)
    return [
        f"{module} imports {used}"
        for module, used in pairs
        if floor[room(used)] > floor[room(module)] and not (room(module) == LOBBY and room(used) == "testing")  # when asked for
    ]


def cycle(graph):
    """What is left when everything that uses only what is gone has gone, again and again."""
    left = {name: set(used) - {name} for name, used in graph.items()}
    while free := {name for name, used in left.items() if not used & set(left)}:
        left = {name: used for name, used in left.items() if name not in free}
    return sorted(left)


GRAPH = {module: set(imports(tree)) for module, tree in TREES.items()}


def test_every_entry_is_a_room_or_a_door():
    entries = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"} - {"__init__.py", "py.typed"}
    assert entries == {*ROOMS, *(f"{name}.py" for name in DOORS)}
    assert len(entries) <= MOST_ENTRIES


def test_each_room_uses_only_rooms_above_it():
    assert not climbing(GRAPH)
    assert climbing({"sgmcmc.rows.table": {"sgmcmc.run.loop"}}) == ["sgmcmc.rows.table imports sgmcmc.run.loop"]
    assert climbing({"sgmcmc.run.loop": {"sgmcmc"}})


def test_there_is_no_cycle():
    rooms = {name: set() for name in FLOORS}
    for module, all_used in GRAPH.items():
        if room(module) != LOBBY:
            rooms[room(module)] |= {room(used) for used in all_used}
    assert not cycle(rooms)
    without_lobby = {module: used for module, used in GRAPH.items() if module != "sgmcmc"}
    assert not cycle(without_lobby)
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == ["a", "b", "c", "d"]


def test_imports_of_every_kind_are_seen():
    tree = ast.parse(
        """
from typing import TYPE_CHECKING
import sgmcmc.core.trees
from sgmcmc.rows import hosts
from sgmcmc.core.errors import warn
if TYPE_CHECKING:
    from sgmcmc.results.result import Result
else:
    from sgmcmc.rows import table
def late():
    from sgmcmc.tune.mode import find_mode
    return import_module("sgmcmc.testing")
"""
    )
    names = {"core.trees", "rows.hosts", "core.errors", "rows.table", "tune.mode", "testing"}
    assert set(imports(tree)) == {f"sgmcmc.{name}" for name in names}


@pytest.mark.parametrize("name", ROOMS)
def test_each_room_says_in_a_sentence_what_it_is_for(name):
    words = ast.get_docstring(TREES[f"sgmcmc.{name}"])
    assert words is not None
    first = words.partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^.]*\.", first), first


PURE_ROOMS = ("problem", "algorithms")
PASSES = {"sgmcmc.problem.passes", "sgmcmc.problem.over_draws"}
"""Evaluate a problem on many rows: compiled, with a bar."""

PURE = {module for module in TREES if room(module) in PURE_ROOMS} - PASSES
PURE |= {f"sgmcmc.results.{name}" for name in ("stein", "diagnostics")}
IMPURE = {"jit", "pjit", "print", "open", "input", "time", "tqdm", "threading", "pathlib", "os", "io", "sys", "subprocess"}


def used_names(tree):
    """What a module imports, calls, or takes from a module; not the methods of its own objects."""
    nodes = list(ast.walk(tree))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    taken = [alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    sources = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    called = [node.id for node in nodes if isinstance(node, ast.Name)]
    of_jax = [
        node.attr for node in nodes if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("jax", "np", "jnp")
    ]
    return {*modules, *taken, *sources, *called, *of_jax}


@pytest.mark.parametrize("name", sorted(PURE))
def test_the_mathematics_neither_compiles_nor_prints_nor_reads(name):
    assert not used_names(TREES[name]) & {*IMPURE, "load", "save", "savez", "fromfile", "memmap"}


def test_the_mathematics_is_there():
    assert {"sgmcmc.problem.posterior", "sgmcmc.algorithms.kernel", "sgmcmc.algorithms.gradients.saga"} <= PURE <= set(TREES)
    assert set(TREES) >= PASSES
    assert used_names(ast.parse("import jax\nstep = jax.jit(move)\nprint(np.load(file))")) >= {"jit", "print", "load"}


# How long and how branched a function may be where samplers are put together.

MOST_LINES, MOST_BRANCHES = 40, 8
SETTING_UP = [f"sgmcmc.{name}" for name in ("samplers.composing", "samplers.named", "tune.preparation", "run.request")]


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def body_lines(function):
    """From the first statement after the docstring to the last."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def branches(function):
    """Ways that a call may go."""
    nodes = list(ast.walk(function))
    single = sum(isinstance(node, ast.If | ast.For | ast.While | ast.IfExp | ast.ExceptHandler) for node in nodes)
    operands = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return single + operands + sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))


@pytest.mark.parametrize("function", [one for name in SETTING_UP for one in functions(TREES[name])], ids=lambda one: one.name)
def test_no_function_that_sets_up_is_long(function):
    assert body_lines(function) <= MOST_LINES
    assert branches(function) <= MOST_BRANCHES


def test_lines_and_branches_are_counted():
    (function,) = functions(
        ast.parse(
            '''
def f(
    a,
    b,
):
    """Words
    and more.
    """
    if a and b and a:
        return [x for x in b if x if a]
    try:
        return 1 if a else 2
    except ValueError:
        while b:
            pass
'''
        )
    )
    assert (body_lines(function), branches(function)) == (7, 8)


def test_files_of_tests_have_names_of_their_own():
    """Of two modules of one name the second is not collected."""
    names = [path.name for path in (SOURCE.parents[1] / "tests").rglob("test_*.py")]
    assert len(names) > 100
    assert {name for name in names if names.count(name) > 1} == set()


# What is public.

MOST_PUBLIC = 40
FAMILY = re.compile(r"(sgld|sghmc|sgnht|baoa)(cv)?(_setup)?")


def test_public_names():
    families = {FAMILY.sub(r"\1*", name) if FAMILY.fullmatch(name) else name for name in sgmcmc.__all__}
    assert {"sgld*", "sghmc*", "sgnht*", "baoa*"} <= families
    assert len(families) <= MOST_PUBLIC
    assert sorted(sgmcmc.__all__) == sgmcmc.__all__
    for name in sgmcmc.__all__:
        assert hasattr(sgmcmc, name)


MODULES = ("algorithms", "constraints", "data", "distributions", "hosts", "testing")
FUNCTIONS = [name for name in sgmcmc.__all__ if name not in MODULES]
FUNCTIONS += ["data.convert", "data.open", "data.verify", "hosts.share", "hosts.stratum"]
FUNCTIONS += [f"sklearn.{name}" for name in sgmcmc.sklearn.__all__]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_names_are_documented_with_a_running_example(name):
    thing = operator.attrgetter(name)(sgmcmc)
    assert thing.__module__.startswith("sgmcmc")
    assert inspect.getdoc(thing), name
    if name not in ("RunOptions", "SetupOptions"):  # argument lists: described, nothing to run
        assert ">>>" in inspect.getdoc(thing), name


@pytest.mark.parametrize("name", ["algorithms", "data", "hosts", "sklearn", "testing"])
def test_public_modules_are_documented(name):
    assert inspect.getdoc(getattr(sgmcmc, name))


def test_distributions_are_numpyros_and_imported_late():
    import numpyro.distributions

    assert sgmcmc.distributions is numpyro.distributions
    assert sgmcmc.constraints is numpyro.distributions.constraints
    late = "{'numpyro', 'arviz_stats', 'arviz_base', 'pandas', 'matplotlib', 'sklearn'}"
    script = f"import sys, sgmcmc; sys.exit(len({late} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="sgmcmc"):
        getattr(sgmcmc, "sample_everything")  # noqa: B009 (the attribute must not exist)
