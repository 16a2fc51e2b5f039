"""Run notebooks from top to bottom and write what came out into them: `make notebook`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

LONGEST = 300
"""Seconds that a cell may take."""


def executed(path: Path, folder: Path) -> Any:
    """The notebook with its outputs, run in a folder of its own; an error in a cell is raised here."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=LONGEST, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran, which differs every time
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def main() -> None:
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(Path(name), Path(folder)), name)


if __name__ == "__main__":
    main()
