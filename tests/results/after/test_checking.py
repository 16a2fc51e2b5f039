"""Posterior predictive checks: a right model passes, each kind of wrong one is named, and the pictures say the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.results.after.checking import Check
from sgmcmc.results.after.outcomes import Groups, Outcome, in_bins
from sgmcmc.results.after.some_rows import row_numbers, rows_at
from sgmcmc.results.result import Result
from sgmcmc.rows.table import check_dataset

RNG = np.random.default_rng(11)
N = 4000
REGION = RNG.integers(0, 3, N)
ETA = 0.8 * RNG.normal(size=N)
DATA = {
    "eta": ETA, "region": REGION, "age": RNG.uniform(20, 60, N),
    "y": ETA + RNG.normal(size=N), "k": RNG.poisson(np.exp(ETA)).astype(float), "b": RNG.random(N) < 1 / (1 + np.exp(-ETA)),
}  # fmt: skip


def mean(params, rows):
    eta = params["a"] + rows["eta"]
    return {"y": eta, "k": jnp.exp(eta), "b": jax.nn.sigmoid(eta)}


def simulate(key, params, rows):
    of_y, of_k, of_b = jax.random.split(key, 3)
    expected = mean(params, rows)
    y = expected["y"] + jax.random.normal(of_y, rows["eta"].shape)
    return {"y": y, "k": jax.random.poisson(of_k, expected["k"]), "b": jax.random.bernoulli(of_b, expected["b"])}


def fit(data=None, **options):
    model = sgmcmc.Model(
        lambda params, rows: 0.0, DATA | (data or {}), {"a": 0.0},
        **{"simulate": simulate, "mean": mean, "coords": {"region": ["North", "South", "East"]}} | options,
    )  # fmt: skip
    return Result({"a": np.full(200, 0.0) + 0.01 * RNG.normal(size=200)}, {}, None, {"sampler": "by hand"}, model=model)


@pytest.fixture(scope="module")
def right():
    return fit().check(by=("region", "age"), draws=200)


def test_a_right_model_passes(right):
    assert right.ok
    assert "4,000 rows is what the model makes, by all 16 statistics" in str(right)
    assert (right.table["p"] > 0.01).all()
    assert {column: one.kind for column, one in right.outcomes.items()} == {"y": "continuous", "k": "counts", "b": "binary"}
    for outcome in right.outcomes.values():
        counts = np.histogram(outcome.ranks, 20, (0, 1))[0]
        assert ((counts - N / 20) ** 2 / (N / 20)).sum() < 43.8  # 19 degrees of freedom, 1 in 1,000


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"y": ETA + RNG.standard_t(3, N)}, {"y: sd", "y: smallest", "y: largest"}),
        ({"y": ETA + RNG.normal(size=N) + 0.5 * (REGION == 1)}, {"y: by region"}),
        ({"k": RNG.poisson(np.exp(ETA) * RNG.gamma(1.0, 1.0, N))}, {"k: sd", "k: zeros", "k: largest"}),
        ({"b": RNG.random(N) < 1 / (1 + np.exp(-2.5 * ETA))}, {"b: calibration"}),
        ({"y": ETA + RNG.normal(size=N) + 0.5 * (DATA["age"] > 50)}, {"y: by age"}),
    ],
)
def test_what_a_model_gets_wrong_is_named(data, named):
    found = fit(data).check(by=("region", "age"), draws=200)
    assert named <= set(found.surprises.index)
    assert not found.ok
    for name in named:
        assert f"- {name}: observed" in str(found)
    untouched = set(DATA) - set(data)
    assert not any(name.split(":")[0] in untouched for name in found.surprises.index)


def test_probabilities_are_counts_of_draws():
    """By hand: of four draws two are as large as what was observed."""
    outcome = Outcome("y", np.array([1.0, 2.0]), np.array([[0.0, 1], [1, 2], [2, 3], [0, 0]]), np.array([0.75, 1.5]))
    observed, simulated = outcome.statistics()["mean"]
    assert observed == 1.5
    assert simulated.tolist() == [0.5, 1.5, 2.5, 0.0]
    groups = Groups("g", ("a", "b"), np.array([0, 1]))
    assert np.allclose(groups.means(np.array([[1.0, 2.0], [3.0, 4.0]])), [[1, 2], [3, 4]])
    spread = Outcome("y", outcome.observed, outcome.simulated, outcome.expected, (groups,)).statistics()["by g"]
    assert np.isclose(spread[0], np.sqrt((0.25**2 + 0.5**2) / 2))


def test_groups_may_be_as_near_as_they_like():
    """Rows that a model was fitted to, group by group: no simulated group is as near to its mean, and that is no surprise."""
    made = RNG.normal(size=(200, 60))
    groups = (Groups("g", ("a", "b"), np.repeat([0, 1], 30)),)
    observed = np.tile([-1.0, 1.0], 30)
    near = Check({"y": Outcome("y", observed, made, np.zeros(60), groups)}, 60, 60)
    assert near.table.loc["y: by g", "observed"] == 0.0
    assert near.table.loc["y: by g", "p"] == 1.0
    far = Check({"y": Outcome("y", observed + 1.0, made, np.zeros(60), groups)}, 60, 60)
    assert "y: by g" in far.surprises.index


def test_figures_have_what_each_kind_needs(right):
    labels = [axes.get_xlabel() for axes in right.figure.axes]
    assert labels[:4] == ["y", "rank of y in its row's simulations", "region", "age"]
    assert labels[4:6] == ["k", "rank of k in its row's simulations"]
    assert labels[8:10] == ["expected b", "expected b"]
    ticks = [text.get_text() for text in right.figure.axes[2].get_xticklabels()]
    assert ticks == ["North", "South", "East"]
    heights = right.figure.axes[4].patches
    zeros = (DATA["k"] == 0).sum()
    assert np.isclose(heights[0].get_height(), np.sqrt(zeros))


def test_rows_are_drawn_wherever_they_are(tmp_path):
    table = check_dataset({name: DATA[name] for name in ("eta", "y")})
    numbers = row_numbers(table, 300, 1)
    assert len(np.unique(numbers)) == 300
    assert np.array_equal(row_numbers(table, 10**6, 1), np.arange(N))
    expected = rows_at(table, numbers)
    folder = sgmcmc.data.convert(dict(table), tmp_path / "rows", shuffle=False, progress=False)
    slices = check_dataset({name: OnlySlices(column) for name, column in table.items()})
    for other in (check_dataset(folder), slices):
        found = rows_at(other, numbers)
        assert all(np.array_equal(found[name], expected[name]) for name in table)
    some = fit().check(rows=300, draws=20)
    assert (some.rows, some.n_rows) == (300, N)
    assert str(some) == "- 20 draws are too few to say what is surprising; ask for draws=400."


class OnlySlices:
    def __init__(self, values):
        self._values, self.shape, self.dtype = values, values.shape, values.dtype

    def __len__(self):
        return len(self._values)

    def __getitem__(self, place):
        assert isinstance(place, slice)
        return self._values[place]


def test_the_expected_value_is_simulated_where_the_model_does_not_know_it():
    found = fit(mean=None, observed=("k",)).check(draws=100)
    assert list(found.outcomes) == ["k"]
    assert np.allclose(found.outcomes["k"].expected, found.outcomes["k"].simulated.mean(axis=0))


def test_bins_are_of_one_size_and_ties_stay_together():
    assert in_bins("x", np.arange(1000.0)).sizes.tolist() == [100] * 10
    tied = in_bins("x", np.repeat([0.0, 1.0, 2.0], [700, 200, 100]))
    assert tied.sizes.tolist() == [700, 200, 100]
    assert tied.labels == ("0", "1", "2")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fit(simulate=None).check(), "this model cannot simulate"),
        (lambda: fit().check(by="county"), "by names the column 'county'; the dataset has eta, region"),
        (
            lambda: fit(simulate=lambda key, p, rows: {"z": rows["eta"]}).check(),
            "simulate makes z and the dataset has .*nothing to",
        ),
        (lambda: fit(simulate=lambda key, p, rows: rows["eta"]).check(), "expected a dict by column"),
        (
            lambda: fit(simulate=lambda key, p, rows: {"y": rows["eta"][:, None]}).check(),
            r"of shape \(4000, 1\).*make them alike",
        ),
        (lambda: fit({"X": np.zeros((N, 2))}).check(by="X"), "expected one number for each row"),
        (lambda: Result({"a": np.zeros(5)}, {}, None, {}).check(), "check needs the model"),
    ],
)
def test_what_cannot_be_checked_is_said(call, said):
    with pytest.raises(sgmcmc.InputError, match=said):
        call()
