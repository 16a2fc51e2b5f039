"""From frames to rows: the same whatever the frame is, however it is cut, and for new data as for old."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pyarrow.parquet
import pytest

import sgmcmc
from sgmcmc.core.errors import InputError
from sgmcmc.models.regression import facts as facts_module
from sgmcmc.models.regression import sources, storing
from sgmcmc.models.regression.building import build_design, core_of
from sgmcmc.models.regression.families import find_family
from sgmcmc.models.regression.formula import parse
from sgmcmc.models.regression.storing import in_memory

N = 400


def a_frame(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.poisson(2.0, n),
            "age": rng.uniform(20, 80, n),
            "dose": rng.normal(5, 2, n),
            "region": rng.choice(["North", "South", "West"], n),
            "plan": rng.choice(["a", "b"], n),
            "visits": rng.integers(1, 6, n),
            "smoker": rng.random(n) < 0.3,
            "start": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"),
            "years": rng.uniform(0.1, 1, n),
        }
    )


FORMULA = (
    "y ~ age * region + C(visits) + poly(dose, 2) + bs(age, df=4) + smoker + C(month(start)) + plan:dose + offset(log(years))"
)


def designed(formula, frame, family="poisson", **told):
    chosen, link = find_family(family)
    return build_design(formula, frame, chosen, link, **told)


def same(a, b):
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


FORMULAS = [
    FORMULA,
    "y ~ 0 + region + scale(dose) + center(age):plan + log(years)",
    "y ~ (age + dose + smoker) ** 2 - age:dose + C(region, Treatment('West')) + days(start)",
    "y ~ age + (1 + dose | region) + (1 | plan/visits) + (0 + age || plan:region)",
    "y ~ cr(dose, df=4) + C(visits, Sum) + {age / years} + I(dose > 5)",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_rows_of_new_data_are_those_of_old_data_block_by_block(formula):
    """The property: whatever rows a block has, they become what they are among all."""
    frame, rng = a_frame(), np.random.default_rng(1)
    design, source = designed(formula, frame)
    whole = in_memory(design, source)
    for _ in range(20):
        rows = rng.permutation(N)[: rng.integers(1, 40)]
        same(design.rows(frame.iloc[rows].reset_index(drop=True)), {name: values[rows] for name, values in whole.items()})


def test_columns_are_those_of_the_formula_by_hand():
    frame = a_frame()
    design, source = designed("y ~ age * region + smoker", frame)
    raw = in_memory(design, source)["x"] * design.matrix.scales + design.matrix.means
    south, west = frame.region == "South", frame.region == "West"
    by_hand = np.column_stack([frame.age, south, west, frame.smoker, frame.age * south, frame.age * west])
    assert design.matrix.names == ("age", "region[South]", "region[West]", "smoker", "age:region[South]", "age:region[West]")
    np.testing.assert_allclose(raw, by_hand, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(design.matrix.scales[[1, 2, 3]], 1)  # levels keep their unit
    np.testing.assert_allclose(design.matrix.means[0], frame.age.mean())


def test_designs_are_those_of_patsy():
    patsy = pytest.importorskip("patsy", reason="patsy comes with the extra bench")
    frame = a_frame()
    frame["visits"] = frame.visits.astype(float)
    for formula in ("age * region + plan", "region:plan + dose", "0 + region + age:plan", "C(visits) * plan"):
        design, source = designed(f"y ~ {formula}", frame)
        rows = in_memory(design, source)["x"] * design.matrix.scales + design.matrix.means
        ours = np.column_stack([np.ones(N), rows]) if design.matrix.intercept else rows
        theirs = np.asarray(patsy.dmatrix(formula, frame))
        assert np.linalg.matrix_rank(ours, tol=1e-2) == np.linalg.matrix_rank(theirs)
        both = np.column_stack([ours, theirs])
        assert np.linalg.matrix_rank(both, tol=1e-2) == np.linalg.matrix_rank(theirs)  # they span the same


def kinds_of_frames(frame, folder):
    frame.to_csv(folder / "rows.csv", index=False)
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), folder / "rows.parquet", row_group_size=150)
    frame.iloc[:250].to_csv(folder / "part-1.csv", index=False)
    frame.iloc[250:].to_csv(folder / "part-2.csv", index=False)
    return {
        "pandas": frame,
        "pandas of arrow": frame.convert_dtypes(dtype_backend="pyarrow"),
        "pandas, nullable": frame.convert_dtypes(),
        "categories": frame.astype({"region": "category", "plan": "category"}),
        "polars": polars.from_pandas(frame),
        "lazy": polars.from_pandas(frame).lazy(),
        "polars categories": polars.from_pandas(frame).with_columns(polars.col("region").cast(polars.Categorical)),
        "arrow": pyarrow.Table.from_pandas(frame),
        "dict": {name: frame[name].to_numpy() for name in frame},
        "dict of lists": {name: frame[name].tolist() for name in frame},
        "csv": str(folder / "rows.csv"),
        "parquet": folder / "rows.parquet",
        "pattern": str(folder / "part-*.csv"),
    }


def test_frames_of_every_kind_make_the_same_rows(tmp_path, monkeypatch):
    frame, formula = a_frame(), "y ~ age * region + C(visits) + scale(dose) + smoker + C(month(start)) + offset(log(years))"
    design, source = designed(formula, frame)
    expected = in_memory(design, source)
    monkeypatch.setattr(sources, "BLOCK_ROWS", 130)
    for kind, other in kinds_of_frames(frame, tmp_path).items():
        design, source = designed(formula, other)
        found = in_memory(design, source)
        assert list(found) == list(expected), kind
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], atol=2e-5, err_msg=f"{kind}: {name}")


def test_more_rows_than_the_sample_holds(monkeypatch):
    """Levels, ends and moments of all rows, though transforms are fitted on a few."""
    monkeypatch.setattr(facts_module, "MOST_SAMPLED", 100)
    monkeypatch.setattr(sources, "BLOCK_ROWS", 60)
    frame = a_frame(n=2000)
    frame.loc[1234, ["region", "age"]] = ["East", 99.0]  # one row of a level, which has the largest age
    frame["region"] = frame["region"].astype(object)
    design, source = designed("y ~ C(region) + bs(age, df=4) + center(dose) + C(visits)", frame)
    rows = in_memory(design, source)
    raw = rows["x"] * design.matrix.scales + design.matrix.means
    names = list(design.matrix.names)
    assert names[:2] == ["C(region)[North]", "C(region)[South]"]
    np.testing.assert_allclose(raw[:, names.index("center(dose)")], frame.dose - frame.dose.mean(), atol=1e-4)
    assert len(rows["y"]) == 2000
    assert len(design.facts.sample) == 100


def test_the_sample_of_a_stream_is_of_all_of_it(monkeypatch):
    monkeypatch.setattr(facts_module, "MOST_SAMPLED", 500)
    frame = pd.DataFrame({"x": np.arange(50_000.0)})
    source = sources.Source(["x"], lambda columns: (frame.iloc[i : i + 999] for i in range(0, 50_000, 999)))
    found = facts_module.look(source, ["x"], []).sample["x"]
    assert len(found) == 500
    assert found.is_monotonic_increasing
    assert abs(found.mean() - 25_000) < 4 * 50_000 / np.sqrt(12 * 500)
    column = facts_module.look(source, ["x"], []).columns["x"]
    np.testing.assert_allclose([column.mean, column.sd], [frame.x.mean(), frame.x.std()])


def test_many_levels_stay_numbers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.poisson(1.0, 3000), "x": rng.normal(size=3000), "shop": rng.integers(0, 40, 3000)})
    design, source = designed("y ~ x + C(shop)", frame)
    rows = in_memory(design, source)
    assert rows["x"].shape == (3000, 1)
    np.testing.assert_array_equal(rows["level of shop"], frame.shop)
    assert rows["level of shop"].dtype == np.int32
    core = core_of(design, *find_family("poisson"))
    assert core.coded == (("C(shop)", "level of shop", tuple(map(str, range(1, 40)))),)


def test_missing_values_are_dropped_or_filled():
    frame = a_frame()
    frame.loc[[3, 5], "age"] = np.nan
    frame["region"] = frame["region"].astype(object).where(np.arange(N) != 7, None)
    design, source = designed("y ~ age + region", frame, missing="drop")
    assert len(in_memory(design, source)["y"]) == N - 3
    assert design.missing.said(design.facts) == "3 rows with missing values were dropped."
    design, source = designed("y ~ age + region", frame, missing={"age": "median", "region": "unknown"})
    rows = in_memory(design, source)
    raw = rows["x"] * design.matrix.scales + design.matrix.means
    np.testing.assert_allclose(raw[[3, 5], 0], frame.age.median(), rtol=1e-5)
    assert design.matrix.names == ("age", "region[South]", "region[West]", "region[unknown]")
    np.testing.assert_allclose(raw[7, 3], 1, rtol=1e-6)
    new = design.rows(pd.DataFrame({"age": [np.nan], "region": [None]}), outcome=False)
    np.testing.assert_allclose(new["x"][0], rows["x"][7] * [0, 1, 1, 1] + rows["x"][3] * [1, 0, 0, 0], atol=1e-6)
    dropped, source = designed("y ~ age + region", frame, missing={"age": "drop", "region": "South"})
    assert len(in_memory(dropped, source)["y"]) == N - 2


def test_levels_have_the_order_that_was_told():
    frame = a_frame()
    design, _ = designed("y ~ region", frame, levels={"region": ["West", "North", "South"]})
    assert design.matrix.names == ("region[North]", "region[South]")
    ordered = frame.assign(region=pd.Categorical(frame.region, ["South", "West", "North"], ordered=True))
    assert designed("y ~ region", ordered)[0].matrix.names == ("region[West]", "region[North]")
    design, source = designed("region ~ age", ordered, "ordinal")
    np.testing.assert_array_equal(in_memory(design, source)["y"], ordered.region.cat.codes)


def test_trials_events_and_weights():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"n": rng.integers(1, 9, 50), "x": rng.normal(size=50), "t": rng.exponential(size=50), "w": rng.random(50)}
    )
    frame["k"] = rng.binomial(frame.n, 0.4)
    frame["done"] = rng.random(50) < 0.7
    design, source = designed("proportion(k, n) ~ x", frame, "binomial", weights="w")
    rows = in_memory(design, source)
    np.testing.assert_array_equal(rows["trials"], frame.n)
    np.testing.assert_allclose(rows["weight"], frame.w, rtol=1e-6)
    assert design.predicting(["n", "x"]) == ["n", "x"]
    design, source = designed("censored(t, done) ~ x", frame, "weibull")
    np.testing.assert_array_equal(in_memory(design, source)["event"], frame.done)
    assert design.predicting(["x"]) == ["x"]


def test_formulas_are_taken_apart():
    found = parse("log(y + 1) ~ a*b + (1 + x | g) + offset(log(n)) - 1 + (0 + z || h/k) + `odd name`")
    assert (found.outcome, found.form, found.offsets) == ("log(y + 1)", "plain", ("log(n)",))
    assert found.common == "a*b - 1 + `odd name`"
    assert [(one.name, one.varying, one.correlated) for one in found.groupings] == [
        ("g", "1 + x", True), ("h", "0 + z", False), ("h:k", "0 + z", False),
    ]  # fmt: skip
    assert parse("y ~ (1 | g)").common == "1"
    with pytest.raises(InputError, match="close what was opened"):
        parse("y ~ log(x")


def test_a_dot_stands_for_all_other_columns():
    frame = a_frame()[["y", "age", "plan", "years"]]
    design, _ = designed("y ~ .", frame, weights="years")
    assert design.matrix.names == ("age", "plan[b]")


def test_rows_that_do_not_fit_go_to_a_folder(tmp_path, monkeypatch):
    frame = a_frame()
    design, source = designed("y ~ age + region + (1 | visits)", frame)
    expected = in_memory(design, source)
    with storing.stored(design, source, None, None, False) as (dataset, passing):
        assert passing is None
        np.testing.assert_array_equal(dataset["x"], expected["x"])
    monkeypatch.setattr(storing, "MEMORY_SHARE", 0.0)
    with storing.stored(design, source, None, tmp_path / "run", False) as (dataset, passing):
        rows = sgmcmc.data.open(dataset)
        assert (passing, rows.n_rows, rows.shuffled) == (None, N, True)
        np.testing.assert_allclose(np.sort(rows["x"][:], axis=0), np.sort(expected["x"], axis=0))
        assert sorted(rows) == ["group of visits", "x", "y"]
    with storing.stored(design, source, None, None, False) as (dataset, passing):
        assert passing is not None
        assert passing.is_dir()
    with pytest.raises(RuntimeError), storing.stored(design, source, None, None, False) as (dataset, gone):
        raise RuntimeError
    assert passing.is_dir()
    assert not gone.exists()
    model = sgmcmc.Model(lambda params, rows: 0.0, {"x": np.zeros(3)}, {"a": 0.0})
    storing.removed_with(model, passing)
    del model
    assert not passing.exists()
