"""The report in the documentation is what `python -m reproduction all` wrote, and its figures say what the project claims."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from reproduction.claims import FAILS, HOLDS
from reproduction.experiment import load
from reproduction.report import CLAIMS, render
from reproduction.settings import METHODS, SETTINGS, TWINS, told

FOLDER = Path(__file__).parents[2] / "docs" / "methods" / "reproduction"


@pytest.fixture(scope="module")
def found():
    return {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in SETTINGS}


def test_the_report_is_what_its_figures_say(found):
    assert render(list(found.values())) == (FOLDER / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SETTINGS)
def test_it_ran_with_the_settings_of_the_table(name, found):
    assert not found[name]["quick"]
    assert found[name]["seed"] is None
    assert found[name]["settings"] == json.loads(json.dumps(told(name)))


@pytest.mark.parametrize("name", SETTINGS)
def test_its_pictures_can_be_drawn_again(name, found):
    figures = load(name).draw(found[name]["numbers"])
    assert list(figures) == found[name]["figures"] == list(load(name).FIGURES)
    for figure_name, figure in figures.items():
        assert (FOLDER / f"{figure_name}.png").stat().st_size > 10_000
        labelled = [axes for axes in figure.axes if axes.get_xlabel() and axes.get_ylabel()]
        assert labelled, f"{figure_name} has no axes with both labels"


def test_every_claim_is_decided(found):
    claims = [claim for name in SETTINGS for claim in CLAIMS[name](found[name]["numbers"])]
    assert sum(not claim.ours for claim in claims) > 55
    assert {claim.section for claim in claims} == {"2", "5.1", "6", "6.1", "6.2", "6.3"}
    for claim in claims:
        assert claim.verdict.partition(":")[0] in (HOLDS, FAILS, "differs"), claim
        assert "nan" not in re.split(r"\W+", claim.seen), claim
        assert not claim.verdict.startswith("differs") or len(claim.verdict) > 30, "a difference needs its reason"


def test_covertype(found):
    """The posterior mean predicts as well as the optimum; like for like, control variates make the log loss vary less."""
    numbers = found["logistic-regression"]["numbers"]
    for losses in (numbers["chains"]["sgldcv"]["log loss of the mean"], [numbers["automatic centre"]["log loss of the mean"]]):
        assert max(losses) - numbers["optimum"] < 0.01
    assert len(numbers["equal steps"]) == 2 * (len(TWINS) + 1)
    for name, (plain, twin) in numbers["equal steps"].items():
        assert twin < plain, name


def test_mnist(found):
    """Averaging predictions does not hurt, and gets within a point of the optimum that Adam finds; no chain is held in memory."""
    numbers = found["neural-network"]["numbers"]
    for method in METHODS:
        chain = numbers["chains"][method.label]
        assert chain["predictive error"] <= np.mean(chain["error"]), method.label
    assert numbers["chains"]["sgld"]["predictive error"] <= numbers["Adam"]["error"] + 0.01
    assert numbers["peak memory"] < 2


def test_the_corrected_sghmc_is_shown_beside_the_articles(found):
    for name in ("logistic-regression", "neural-network"):
        assert {"sghmc", "sghmc corrected", "sghmccv", "sghmccv corrected"} <= set(found[name]["numbers"]["chains"])
