"""The page about a result: what it says, that it is the same every time, and that a browser shows it without asking anybody."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import jax
import numpy as np
import pandas
import pytest
from click.testing import CliRunner

import sgmcmc
from sgmcmc.__main__ import main
from sgmcmc.core.trees import labels as numbered
from sgmcmc.results.diagnostics import Pairs
from sgmcmc.results.report import figures
from sgmcmc.results.report.numbers import WORST, shown
from sgmcmc.results.report.page import page
from tools.browser import browser, installed

EVIL = '<script src="https://example.org/x.js">alert(1)</script> & $\\frac{'
"""A name that is markup, and broken mathematics to matplotlib."""

DATA = {"x": np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)}


def log_lik(params, batch):
    return -0.5 * ((batch["x"] - params[EVIL]) ** 2).sum()


def langevin(stepsize, chains=4, n_iters=2000, **options):
    options = {"minibatch_size": 100, "seed": 1, "progress": False, **options}
    return sgmcmc.sgld(log_lik, DATA, {EVIL: np.zeros(2)}, stepsize, n_chains=chains, n_iters=n_iters, **options)


@pytest.fixture(scope="module")
def hasty():
    """Too large a step, which health sees; kept in a folder."""
    return langevin(8e-4, diagnose=True)


def by_hand(draws, **settings):
    """A result of draws by name (chain, draw, own axes) that are independent, with their exact gradients."""
    flat = np.concatenate([x.reshape(*x.shape[:2], -1) for x in draws.values()], axis=-1)
    labels = [label for name, x in draws.items() for label in numbered(name, x.shape[2:])]
    centre, scale = flat.mean(axis=(0, 1)), np.maximum(flat.std(axis=(0, 1)), 1e-9)
    pairs = Pairs(flat, (centre - flat) / scale**2, labels, None, None)
    return sgmcmc.Result(draws, {}, None, {"sampler": "by hand", **settings}, chained=True, pairs=pairs)


def normals(*shape, scale=1.0, shift=0.0):
    return shift + scale * np.random.default_rng(5).standard_normal(shape)


class Elements(HTMLParser):
    """Tags, their attributes, and whether every one that opens closes."""

    VOID = ("meta", "link", "br")

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs


def test_the_page_says_what_health_says_and_runs_nothing(hasty):
    text = page(hasty)
    elements = Elements(text)
    assert not elements.open
    assert "script" not in elements.tags
    assert "1 finding" in text
    assert "raise minibatch_size" in text
    assert "example.org" in text  # as text
    addresses = [value for name, value in elements.attributes if name in ("src", "href") and value is not None]
    assert all(value.startswith(("#", "data:,")) for value in addresses)
    assert not re.search(r"url\((?!#)|@import", text)
    assert len(text.encode()) < 200_000


def test_ids_are_unique_and_references_lead_to_them(hasty):
    attributes = Elements(page(hasty)).attributes
    ids = [value for name, value in attributes if name == "id"]
    used = {found for _, value in attributes for found in re.findall(r"url\(#([^)]+)\)", value or "")}
    used |= {value[1:] for name, value in attributes if name in ("href", "xlink:href") and value.startswith("#")}
    assert len(ids) == len(set(ids))
    assert used
    assert used <= set(ids)


def test_the_same_result_gives_the_same_bytes_whatever_the_user_s_style(hasty, tmp_path):
    import matplotlib

    before = hasty.report(tmp_path / "one.html").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path", "lines.linewidth": 9}):
        assert hasty.report(tmp_path / "two.html").read_bytes() == before
    other = replace(hasty, settings=hasty.settings | {"seed": 2})
    assert other.report(tmp_path / "three.html").read_bytes() != before


def test_what_cannot_be_judged_is_said(tmp_path):
    alone = replace(by_hand({"mu": normals(1, 500, 2)}), pairs=None)
    assert "bias was not measured" in page(alone)
    assert "diagnose=True" in page(alone)
    weighted = replace(alone, weights=np.linspace(1.0, 0.1, 500))
    assert "bias was not measured" in page(weighted)
    assert page(weighted) != page(alone)
    apart = replace(by_hand({"mu": normals(2, 500) + np.array([[0.0], [9.0]])}), pairs=None)
    assert "Chains disagree about mu" in page(apart)
    exact = replace(alone, settings={"sampler": "sample", "engine": "nuts", "burn_in": 0}, final_state=SimpleNamespace(step=500))
    assert ">All checks passed<" in page(exact)
    kept = replace(alone, draws=None, kept={"<moments>": sgmcmc.Moments()}, final_state=SimpleNamespace(params={"mu": 0.0}))
    assert "kept no draws" in page(kept)
    assert "<li>&lt;moments&gt;</li>" in page(kept)
    for few in (1, 3, 19):
        assert "fewer than 20 draws" in page(by_hand({"mu": normals(2, few)}))
    with pytest.raises(sgmcmc.InputError, match="make it first"):
        alone.report(tmp_path / "nowhere" / "fit.html")


def test_a_good_result_passes_and_its_intercept_does_not_flatten_the_rest():
    fit = by_hand(
        {"intercept": normals(4, 500, shift=-300.0), "beta": normals(4, 500, 3), "tiny": normals(4, 500, 2, scale=1e-3)}
    )
    assert ">All checks passed<" in page(fit)
    numbers = shown(fit, fit._named_draws())
    groups = [[numbers.names[i] for i in group] for group in figures.by_scale(numbers)]
    assert groups == [["beta[0]", "beta[1]", "beta[2]"], ["intercept"], ["tiny[0]", "tiny[1]"]]
    mixed = by_hand({"beta": np.concatenate([normals(4, 500, 1, shift=500.0), normals(4, 500, 3)], axis=-1)})
    assert list(map(len, figures.by_scale(shown(mixed, mixed._named_draws())))) == [1, 3]


def test_small_parameters_come_first():
    """What a model is about, beside the effects of its groups."""
    draws = {"effects": normals(2, 60, 200), "intercept": normals(2, 60), "slopes": normals(2, 60, 3)}
    draws["effects"][1, :, 7] += 3.0
    fit = by_hand({name: array.astype(np.float32) for name, array in draws.items()})
    names = shown(fit, fit._named_draws()).names
    assert names[:5] == ["intercept", "slopes[0]", "slopes[1]", "slopes[2]", "effects[7]"]
    assert len(names) == WORST


def test_of_many_numbers_the_worst_are_shown():
    draws = normals(2, 60, 100, 100).astype(np.float32)
    draws[1, :, 41, 7] += 3.0
    draws[..., 77, 5] = np.sort(draws[..., 77, 5], axis=1)  # creeps
    fit = by_hand({"w": draws})
    text = page(fit)
    assert f"{WORST} of 10,000 numbers: those of small parameters, then those that do worst, worst first" in text
    names = shown(fit, fit._named_draws()).names
    assert {"w[41,7]", "w[77,5]"} <= set(names[:4])
    assert len(names) == WORST
    assert len(text) < 600_000


def test_predictive_checks_are_on_it_where_the_model_simulates(hasty):
    def simulate(key, params, rows):
        return {"x": params[EVIL] + jax.random.normal(key, rows["x"].shape)}

    def broken(key, params, rows):
        raise ValueError("no <simulator> today")

    model = sgmcmc.Model(log_lik, DATA, {EVIL: np.zeros(2)}, observed=("x",), simulate=simulate)
    text = page(replace(hasty, model=model))
    assert not Elements(text).open
    assert "by all 4 statistics" in text
    assert text.count("<svg") == page(hasty).count("<svg") + 2
    assert "ValueError: no &lt;simulator&gt; today" in page(replace(hasty, model=replace(model, simulate=broken)))


def test_traces_keep_their_extremes():
    chain = normals(10_000)
    chain[4321] = 40.0
    places, values = figures._envelope(chain)
    assert len(places) <= 2 * figures.POINTS
    assert np.all(np.diff(places) > 0)
    np.testing.assert_array_equal(values, chain[places])
    assert values.max() == 40.0
    assert values.min() == chain.min()


# What notebooks show.


def test_notebooks_show_verdict_and_numbers(hasty):
    text = hasty._repr_html_()
    assert "1 finding" in text
    assert "&lt;script" in text
    assert not {"script", "svg"} & set(Elements(text).tags)
    assert "raise minibatch_size" in hasty.health()._repr_html_()
    assert Elements(hasty.summary()._repr_html_()).tags.count("tr") == 3


def test_notebooks_show_models_samplers_and_decisions():
    model = sgmcmc.Model(
        log_lik,
        DATA,
        {EVIL: np.zeros(2)},
        coords={"axis": ["<i>", "b"]},
        dims={EVIL: ["axis"]},
        mean=lambda params, rows: rows["x"],
    )
    sampler = sgmcmc.sgld_setup(model, 1e-4, minibatch_size=10)
    for thing in (model, sampler, sampler.decisions.and_then("n", 1, "One <b> it is.")):
        tags = Elements(thing._repr_html_()).tags
        assert not {"script", "i"} & set(tags)
    assert "by axis" in model._repr_html_()
    framed = replace(model, dataset=pandas.DataFrame({"x": np.zeros(500)}))
    assert repr(framed).startswith("<Model of x: ")
    assert "500" not in framed._repr_html_()
    assert "minibatch_size" in sampler._repr_html_()
    assert repr(sampler).startswith("<Sampler sgld: 2 numbers in")


def test_figures_show_themselves(hasty):
    data, size = hasty.plot()._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert size["width"] < 2000


# On the command line.


def test_report_of_a_run_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    langevin(8e-4, diagnose=True, checkpoint="run")
    ended = CliRunner().invoke(main, ["report", "run", "--title", "A & B"])
    assert ended.exit_code == 0, ended.output
    assert ended.output == "run.html: 1 finding: do not use the draws as they are\n"
    assert "<h1>A &amp; B</h1>" in (tmp_path / "run.html").read_text()
    assert CliRunner().invoke(main, ["report", "run", "--out", "other.html", "-q"]).output == ""
    assert (tmp_path / "other.html").exists()
    assert CliRunner().invoke(main, ["report", "nowhere"]).exit_code == 2


# In a browser.

needs_chromium = pytest.mark.skipif(installed() is None, reason="there is no Chromium; make browser installs it")


@pytest.fixture(scope="module")
def tab():
    with browser() as one:
        yield one


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)], ids=["desk", "phone"])
def test_a_browser_shows_it_and_asks_nobody(tab, hasty, width, dark, tmp_path):
    path = hasty.report(tmp_path / "fit.html")
    seen = tab.open(path, width, dark=dark)
    assert seen.console == []
    assert seen.requests == [path.as_uri()]
    assert tab.evaluate("document.querySelector('#verdict h2').innerText") == "1 finding: do not use the draws as they are"
    assert tab.evaluate("document.querySelector('#verdict').getBoundingClientRect().top") < 250
    assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing to the side of the screen
    assert tab.evaluate("document.querySelectorAll('svg').length") >= 5
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(c => c > 127)")
    assert light is not dark


@needs_chromium
def test_a_page_that_asks_or_fails_is_noticed(tab, tmp_path):
    """The control."""
    path = tmp_path / "bad.html"
    path.write_text("<img src='nowhere.png'><script>throw new Error('no')</script>")
    seen = tab.open(path)
    assert len(seen.requests) == 2
    assert len(seen.console) >= 2
