"""From the name of an experiment to a folder with report, pictures and figures."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from reproduction import report
from reproduction.experiment import load
from reproduction.settings import SETTINGS, told
from reproduction.workbook import Workbook, replaced
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.data.datasets import get_dataset
from sgmcmc.results.pictures import save_png


def check_installed(names: Sequence[str]) -> None:
    """Optax, which the network's experiment asks for last, is not among the library's own needs."""
    if "neural-network" in names and find_spec("optax") is None:
        raise SgmcmcError("neural-network needs optax, which is not installed; pip install -e '.[reproduction]'")


def check_data(names: Sequence[str], progress: bool) -> None:
    """Have the datasets, or say what is missing: now, not after half of the work."""
    for dataset in {load(name).DATASET for name in names} - {None}:
        get_dataset(str(dataset), progress=progress)


def reproduce_one(name: str, folder: Path, quick: bool, seed: int | None, progress: bool, say: Callable[[str], Any]) -> None:
    """Run an experiment, or what is left of it, and write its files and the report."""
    book, experiment = Workbook(folder, name, quick, seed, progress, say), load(name)
    numbers = json.loads(json.dumps(experiment.measure(book)))  # exactly what a reader of the file will have
    figures = experiment.draw(numbers)
    found = {
        "experiment": name,
        "title": experiment.TITLE,
        "quick": quick,
        "seed": seed,
        "seconds": round(book.seconds, 1),
        "software": software(),
        "settings": told(name),
        "figures": list(figures),
        "numbers": numbers,
    }
    for figure_name, figure in figures.items():
        save(figure, folder / figure_name)
    with replaced(folder / f"{name}.json") as file:
        file.write(compact(found).encode())
    write_report(folder, quick, seed)


def write_report(folder: Path, quick: bool, seed: int | None) -> None:
    """The report of every experiment that the folder has of this kind and from this version."""
    files = [folder / f"{name}.json" for name in SETTINGS]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.exists()]
    alike = [one for one in found if (one["quick"], one["seed"], one["software"]["sgmcmc"]) == (quick, seed, version("sgmcmc"))]
    with replaced(folder / "report.md") as file:
        file.write(report.render(alike).encode())


def save(figure: Figure, path: Path) -> None:
    """As PNG and SVG, the same bytes for the same numbers."""
    with replaced(path.with_suffix(".png")) as file:
        save_png(figure, file)
    with rc_context({"svg.hashsalt": "sgmcmc"}), replaced(path.with_suffix(".svg")) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def software() -> dict[str, Any]:
    """What it ran on."""
    names = ("sgmcmc", "jax", "numpyro", "numpy")
    found: dict[str, Any] = {name: version(name) for name in names}
    return {**found, "python": sys.version.split()[0], "machine": platform.machine(), "cores": os.cpu_count()}


def compact(found: dict[str, Any]) -> str:
    """JSON with a line for each top-level name."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in found.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
