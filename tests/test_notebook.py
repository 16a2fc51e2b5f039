"""The notebook among the examples runs from top to bottom, and shows its pictures and tables by itself."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

from tools.notebook import executed

NOTEBOOK = Path(__file__).parents[1] / "examples" / "claims.ipynb"


def shown(notebook):
    """Every cell's code with what it showed: its kinds and the texts."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield cell.source, cell.outputs


def kinds(notebook):
    """What each cell shows, but for bars, which only appear where something takes long."""
    shows = [[set(one.get("data", {})) for one in outputs] for _, outputs in shown(notebook)]
    return [[sorted(one) for one in outputs if one - {"text/plain"}] for outputs in shows]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    return executed(NOTEBOOK, folder), folder


def test_it_shows_what_the_saved_one_shows(run):
    notebook, folder = run
    assert kinds(notebook) == kinds(nbformat.read(NOTEBOOK, as_version=4))
    assert sum("image/png" in one for outputs in kinds(notebook) for one in outputs) == 3
    assert (folder / "claims.html").stat().st_size < 1_000_000
    streams = [one for _, outputs in shown(notebook) for one in outputs if one.output_type == "stream"]
    assert {one.name for one in streams} == {"stdout"}  # nothing is warned of


def test_its_pictures_are_no_blanks(run):
    images = [one.data["image/png"] for _, outputs in shown(run[0]) for one in outputs if "image/png" in one.get("data", {})]
    for image in images:
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(image))).convert("L"))
        assert pixels.shape[1] > 400
        assert 0.005 < (pixels < 200).mean() < 0.6  # ink, and paper


def test_bars_stand_where_they_ended(run):
    (outputs,) = [outputs for source, outputs in shown(run[0]) if source.startswith("fit = ")]
    bars = [one.data["text/plain"] for one in outputs if one.output_type == "display_data"]
    assert all("\r" not in bar and "\n" not in bar for bar in bars)
    assert all("100%" in bar or "%" not in bar for bar in bars)
    assert "All checks passed" in outputs[-1].data["text/html"]
