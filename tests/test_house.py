"""The house: which room may use which, what is public, and that it is documented."""

from __future__ import annotations

import ast
import inspect
import operator
import subprocess
import sys
from pathlib import Path

import pytest

import sgmcmc

SOURCE = Path(sgmcmc.__file__).parent

ROOMS = [
    {"_types", "errors", "_tree", "native", "gathering", "replacing"},
    {"posterior", "whitening", "schedules", "checks", "seeds"}
    | {"rowheader", "rowfiles", "table", "sources", "strata", "importance", "pool"},
    {"gradients", "centering", "curvature", "dynamics", "kernel", "laws"},
    {"summaries", "quantiles", "diagnostics", "inflation", "stein", "decisions", "health"},
    {"progress", "prefetch", "signals", "checkpoints", "hosts", "shared_folder", "spread"}
    | {"standing", "pace", "run", "passes", "mode", "centre"}
    | {"result", "assembly", "pictures", "failures", "saving", "loading", "run_checks", "sampler"},
    {"survey", "pilot", "design", "preparation", "adaptation"},
    {"composition", "samplers", "underdamped", "auto"},
    {"data", "datasets", "models", "__init__", "demo", "experiments", "cli", "__main__"},
]
PURE = {"posterior", "whitening", "schedules", "gradients", "centering", "curvature", "dynamics", "kernel", "laws"}
PURE |= {"diagnostics", "summaries", "quantiles", "inflation", "stein", "decisions", "health"}


def modules():
    """The syntax tree of each room; a package is one room."""
    trees: dict[str, ast.Module] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        trees.setdefault(name, ast.Module([], [])).body.extend(ast.parse(path.read_text()).body)
    return trees


def imports(tree):
    """Modules of ours that a module uses when it is imported or run (not those for type checking only)."""
    typing_only = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and isinstance(test.test, ast.Name) and test.test.id == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sgmcmc") and id(node) not in typing_only:
            yield (node.module or "").removeprefix("sgmcmc").removeprefix(".").partition(".")[0] or "__init__"


def test_every_module_has_a_room():
    assert set(modules()) == set().union(*ROOMS)


def test_each_room_uses_only_rooms_above_it():
    floor = {name: number for number, room in enumerate(ROOMS) for name in room}
    for name, tree in modules().items():
        for used in imports(tree):
            assert floor[used] <= floor[name], f"{name} imports {used}, which is in a room below it"


def test_there_is_no_cycle():
    graph = {name: set(imports(tree)) - {name} for name, tree in modules().items()}
    done: set[str] = set()
    while len(done) < len(graph):
        free = {name for name, used in graph.items() if name not in done and used <= done}
        assert free, f"a cycle among {sorted(set(graph) - done)}"
        done |= free


@pytest.mark.parametrize("name", sorted(PURE))
def test_the_mathematics_neither_compiles_nor_prints_nor_reads(name):
    tree = ast.parse((SOURCE / f"{name}.py").read_text())
    used = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    used |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & {"jit", "print", "time", "tqdm", "threading", "pathlib", "input"}


def test_public_names():
    assert len(sgmcmc.__all__) <= 40
    assert sorted(sgmcmc.__all__) == sgmcmc.__all__
    for name in sgmcmc.__all__:
        assert hasattr(sgmcmc, name)


MODULES = ("constraints", "data", "distributions", "hosts")
FUNCTIONS = [name for name in sgmcmc.__all__ if name not in MODULES]
FUNCTIONS += ["data.convert", "data.open", "data.verify", "hosts.share", "hosts.stratum"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_names_are_documented_with_a_running_example(name):
    thing = operator.attrgetter(name)(sgmcmc)
    assert thing.__module__.startswith("sgmcmc")
    assert inspect.getdoc(thing), name
    if name not in ("RunOptions", "SetupOptions"):  # argument lists: described, nothing to run
        assert ">>>" in inspect.getdoc(thing), name


def test_distributions_are_numpyros_and_imported_late():
    import numpyro.distributions

    assert sgmcmc.distributions is numpyro.distributions
    assert sgmcmc.constraints is numpyro.distributions.constraints
    late = "{'numpyro', 'arviz_stats', 'arviz_base', 'pandas', 'matplotlib'}"
    script = f"import sys, sgmcmc; sys.exit(len({late} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="sgmcmc"):
        getattr(sgmcmc, "sample_everything")  # noqa: B009 (the attribute must not exist)
