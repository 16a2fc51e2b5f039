"""A regression as data: what a file or a folder gives back, in this process and in another, and what a hostile file cannot do."""

import copy
import json
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from test_designs import FORMULAS, N, a_frame, designed, same

import sgmcmc
from sgmcmc.core.array_files import read_arrays, write_arrays
from sgmcmc.models.regression.building import build_design, core_of
from sgmcmc.models.regression.families import find_family
from sgmcmc.models.regression.laws import read_law, said_law, written_law
from sgmcmc.models.regression.result import Regression
from sgmcmc.models.regression.storing import in_memory
from sgmcmc.models.regression.written import read_design, read_priors, written
from sgmcmc.results.packing import pack, unpack

law = sgmcmc.distributions


def through_a_file(tree, path):
    """What a tree is after a file."""
    write_arrays(path, *pack(tree))
    return unpack(*read_arrays(path))


MORE = [
    ("y ~ . - years - start - n", "poisson", {}),
    ("y ~ hashed(region, levels=4) + standardize(dose) + np.log1p(years) + C(plan, contr.helmert)", "poisson", {}),
    ("region ~ age + plan", "categorical", {}),
    ("region ~ age + plan", "ordinal", {"levels": {"region": ["West", "South", "North"]}}),
    ("proportion(visits, n) ~ age", "binomial", {"missing": {"age": "mean", "region": "drop"}}),
    ("dose ~ poly(age, 3, raw=True) + region", "gaussian", {"weights": "years", "missing": {"age": 50.0}}),
]


@pytest.mark.parametrize(("formula", "family", "told"), [*((formula, "poisson", {}) for formula in FORMULAS), *MORE])
def test_a_design_out_of_a_file_makes_the_rows_that_it_made(formula, family, told, tmp_path):
    frame = a_frame().assign(n=np.arange(N) + 5)
    told = told | {"missing": {name: v for name, v in told.get("missing", {}).items() if name in formula}}
    design, source = designed(formula, frame, family, **told)
    core = core_of(design, *find_family(family))
    found, again = read_design(through_a_file(written(design, core, {}), tmp_path / "design.npz"))
    same(in_memory(found, source), in_memory(design, source))
    assert jax.tree.map(np.shape, again.start()) == jax.tree.map(np.shape, core.start())
    assert again.names() == core.names()
    assert again.known_priors() == core.known_priors()
    assert found.needed == design.needed
    assert found.missing == design.missing
    assert found.response.said == design.response.said


def test_ten_thousand_levels_are_kept(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.poisson(1.0, 30_000), "shop": [f"s{i}" for i in rng.integers(0, 10_000, 30_000)]})
    design, source = designed("y ~ shop + (1 | shop)", frame)
    found, _ = read_design(through_a_file(written(design, core_of(design, *find_family("poisson")), {}), tmp_path / "design.npz"))
    same(in_memory(found, source), in_memory(design, source))
    assert len(found.facts.sample) == 2_000


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A regression with a folder, and a file beside it; predictions for rows that it has not seen."""
    place = tmp_path_factory.mktemp("kept")
    frame = a_frame().assign(plan=lambda f: f.plan + f.visits.astype(str))
    priors = {"region": law.Normal(0, 0.3), "sd(plan)": law.TruncatedNormal(0.0, 1.0, low=0.0)}
    formula = "y ~ poly(age, 2) + region + C(month(start)) + (1 | plan) + offset(log(years))"
    options = {"family": "poisson", "missing": {"age": "median"}, "draws": 50, "chains": 2, "engine": "nuts", "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 50 draws are too few, as it says
        fit = sgmcmc.glm(formula, frame, priors=priors, checkpoint=place / "run", seed=1, **options)
    fit.save(place / "fit.sgmcmc")
    new = frame.iloc[:40].drop(columns="y").assign(plan=["new", "a1"] * 20, age=np.nan)
    new.to_parquet(place / "new.parquet")
    np.savez(place / "expected.npz", mean=fit.predict(new, progress=False), draws=fit.predict(new, "draws", progress=False))
    return fit, place, new


SCRIPT = """
import sys, json, numpy as np, pandas as pd, sgmcmc
place = sys.argv[1]
new, expected, told = pd.read_parquet(place + "/new.parquet"), np.load(place + "/expected.npz"), {}
for name in ("fit.sgmcmc", "run"):
    fit = sgmcmc.load(place + "/" + name)
    np.testing.assert_array_equal(fit.predict(new, progress=False), expected["mean"])
    np.testing.assert_array_equal(fit.predict(new, "draws", progress=False), expected["draws"])
    tables = fit.summary().to_csv(float_format="%.4g"), fit.compare_levels("region").to_csv()
    told[name] = [type(fit).__name__, str(fit.decisions), *tables, sorted(fit.told)]
    fit.report(place + "/page.html")
assert "formulaic.transforms" in sys.modules and "numpyro" in sys.modules
print(json.dumps(told))
"""


def test_pickled_it_predicts_bit_for_bit(fitted):
    fit, _, new = fitted
    for again in (pickle.loads(pickle.dumps(fit)), copy.copy(fit)):
        assert isinstance(again, Regression)
        np.testing.assert_array_equal(again.predict(new, progress=False), fit.predict(new, progress=False))
        assert again.compare_levels("region").equals(fit.compare_levels("region"))


def test_another_process_predicts_bit_for_bit(fitted):
    fit, place, _ = fitted
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT, place], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["run"] == told["fit.sgmcmc"]
    kind, decisions, summary, compared, priors = told["run"]
    assert (kind, priors) == ("Regression", ["region", "sd(plan)"])
    assert decisions == str(fit.decisions)
    assert summary == fit.summary().to_csv(float_format="%.4g")
    assert compared == fit.compare_levels("region").to_csv()
    assert "What the model would have observed" in (place / "page.html").read_text()


def test_what_needs_all_rows_is_refused_where_they_are_not(fitted):
    fit, place, _ = fitted
    loaded = sgmcmc.load(place / "fit.sgmcmc")
    assert loaded.has_its_rows  # 400 rows are all kept
    few = loaded.design.facts.sample.iloc[:100]
    model = loaded.core.model(loaded.design.of_typed(few), loaded.core.priors())
    short = sgmcmc.Regression.of(replace(loaded.inner, model=model), loaded.core, loaded.design)
    with pytest.raises(sgmcmc.InputError, match="this regression came without those of its fit; give predict a frame"):
        short.predict()
    with pytest.raises(sgmcmc.InputError, match="loo has a model of 100 rows, and the fit was of 400"):
        sgmcmc.loo(short)
    with pytest.raises(sgmcmc.InputError, match="is a regression, whose model comes with it; leave model= out"):
        sgmcmc.load(place / "fit.sgmcmc", model=fit.inner.model)


def test_new_levels_have_effects_of_their_own_whatever_stands_beside_them(fitted):
    fit, _, new = fitted
    both = fit.predict(new.iloc[:2].assign(plan=["new", "newer"]), "draws", of="mean", progress=False)
    alone = fit.predict(new.iloc[1:2].assign(plan="newer"), "draws", of="mean", progress=False)
    np.testing.assert_array_equal(both[:, 1:], alone)


HOSTILE = [
    ("y ~ __import__('os').getcwd()", "invalid syntax"),
    ("y ~ eval('1')", "names 'eval'"),
    ("y ~ age.__class__", r"has \.__class__|names"),
    ("y ~ age.to_csv('x')", r"has \.to_csv"),
    ("y ~ np.load('x')", r"has \.load"),
    ("y ~ np.ufunc(age)", r"has \.ufunc"),
    ("y ~ {(lambda: 1)()}", "has a call of what has no name|lambda"),
    ("y ~ {[a for a in [1]]}", "listcomp of Python"),
    ("y ~ {age[0]}", "subscript of Python"),
    ("y ~ I(9 ** 9 ** 9)", "a power of numbers alone"),
    ("y ~ offset(where([1] * 10**9, age, age))", "arithmetic with lists"),
    ("y ~ offset(where((age and ['a']) * 1000000000, age, age))", "arithmetic with lists"),
    ("y ~ offset(where((0 or 'a') * 1000000000, age, age))", "arithmetic with text"),
    ("y ~ offset(" + "age+" * 20_000 + "age)", "offset .* cannot be read: "),
    ("y ~ bs(age, df=4, _state=age)", "the argument _state"),
    ("y ~ offset(exec('1'))", "names 'exec'"),
    ("exec('1') ~ age", "names 'exec'"),
    ("y ~ (1 + eval('1') | region)", "names 'eval'"),
]  # fmt: skip


@pytest.mark.parametrize(("formula", "message"), HOSTILE)
def test_no_formula_reaches_beyond_columns_and_known_functions(formula, message):
    """Of a user, and with columns that are called like functions of Python: as of a file."""
    frame = a_frame().assign(exec=1.0, eval=2.0, __import__=3.0)
    with pytest.raises(sgmcmc.InputError, match=message):
        build_design(formula, frame, *find_family("poisson"))


def test_nothing_in_a_file_is_executed(tmp_path):
    """Every text of a file, changed into a call: refused, and nothing was called."""
    design, _ = designed("y ~ age + poly(dose, 2) + region + (1 | plan) + offset(log(years))", a_frame(), weights="years")
    tree = written(design, core_of(design, *find_family("poisson")), {"age": law.Normal(0, 1)})
    mark = tmp_path / "called"
    call = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    places = [("formula", "text", f"{call} ~ age"), ("formula", "text", f"y ~ (1 + {call} | plan)"), ("formula", "common", call)]
    places += [("formula", "text", f"y ~ age + offset({call})"), (None, "weights", call), (None, "family", call)]
    laws = [{"law": "os", "values": {}}, {"law": "Normal", "values": {"loc": 0.0, "shell": 1.0}}]
    places += [("priors", "age", one) for one in laws]
    for part, name, text in places:
        changed = tree | {part: tree[part] | {name: text}} if part else tree | {name: text}
        with pytest.raises(sgmcmc.InputError):
            read_design(changed), read_priors(changed)
    assert not mark.exists()
    exec(call)  # the control: the call does something
    assert mark.exists()


def test_files_of_another_kind_are_refused_in_a_line(fitted, tmp_path):
    _, place, _ = fitted
    spec, arrays = read_arrays(place / "fit.sgmcmc")
    for part, found in (("formula", "KeyError"), ("kind", "cannot read")):
        broken = json.loads(json.dumps(spec))
        del broken["tree"]["root"]["dict"]["beside"]["dict"][part]
        write_arrays(tmp_path / "broken.sgmcmc", broken, arrays)
        with pytest.raises(sgmcmc.SgmcmcError, match=found) as caught:
            sgmcmc.load(tmp_path / "broken.sgmcmc")
        assert "\n" not in str(caught.value)


PRIORS = [(law.HalfNormal(3.0), 1.5), (law.StudentT(3.0, 0.0, np.ones(2)), 1.5), (law.LKJCholesky(2, 4.0), np.eye(2))]


@pytest.mark.parametrize(("one", "value"), PRIORS)
def test_priors_are_laws_of_the_same_density(one, value, tmp_path):
    again = read_law(through_a_file(written_law(one), tmp_path / "law.npz"))
    np.testing.assert_array_equal(again.log_prob(value), one.log_prob(value))


def test_priors_in_words():
    name, one = said_law("sd(region) = TruncatedNormal(0, 1, low=-1)")
    assert name == "sd(region)"
    assert float(one.log_prob(0.5)) == float(law.TruncatedNormal(0.0, 1.0, low=-1.0).log_prob(0.5))
    for wrong in (
        "age",
        "age=Normal",
        "age=Normal(x)",
        "age=os.system('ls')",
        "age=Foo(1)",
        "age=Normal(0, 1, 2, 3)",
        "=Gamma(1)",
    ):
        with pytest.raises(sgmcmc.InputError, match=r"is not understood.*; expected 'age=Normal"):
            said_law(wrong)


def test_priors_that_no_file_knows_are_kept_in_words(fitted, tmp_path):
    fit, _, new = fitted
    odd = law.TransformedDistribution(law.Normal(0.0, 1.0), law.transforms.ExpTransform())
    other = sgmcmc.Regression.of(fit.inner, fit.core, fit.design, {"sd(plan)": odd})
    other.save(tmp_path / "fit.sgmcmc")
    loaded = sgmcmc.load(Path(tmp_path / "fit.sgmcmc"))
    np.testing.assert_array_equal(loaded.predict(new, progress=False), fit.predict(new, progress=False))
    with pytest.raises(sgmcmc.InputError, match="the priors are in the file in words only"):
        loaded.inner.model.draw_prior(jax.random.key(0))
