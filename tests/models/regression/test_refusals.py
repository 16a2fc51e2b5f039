"""Wrong formulas, frames, levels and arguments: one line each, which names the culprit."""

import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.models.regression.building import build_design
from sgmcmc.models.regression.families import find_family
from sgmcmc.models.regression.storing import in_memory

N = 60
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "y": RNG.poisson(2.0, N),
        "cost": RNG.gamma(2.0, 100.0, N),
        "age": RNG.uniform(20, 80, N),
        "region": RNG.choice(["North", "South"], N),
        "start": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 100, N), unit="D"),
        "grade": RNG.choice(["low", "middle", "high"], N),
        "one": "same",
        "flat": 3.0,
        "gone": np.where(np.arange(N) == 4, np.nan, 1.0 * np.arange(N)),
        "dead": np.where(np.arange(N) == 7, np.nan, 1.0 * np.arange(N)),
        "low": np.arange(N) - 1.0,
        "n": 5,
        "share": np.where(np.arange(N) == 9, 1.0, 0.5),
        "id": [f"row {i}" for i in range(N)],
    }
)

WRONG = [
    ("y", {}, r"formula 'y' has no ~; expected one"),
    ("y ~ a ~ b", {}, r"has 2 signs ~"),
    ("~ age", {}, r"nothing to the left"),
    (3, {}, r"formula is 3; expected a text"),
    ("y ~ log(age", {}, r"ends before '\)'; close what was opened"),
    ("y ~ age)", {}, r"a '\)' too many, at place 8"),
    ("y ~ age +", {}, r"Operator `\+` has insuffient|nothing between"),
    ("y ~ age + + region", {}, r"nothing between two signs"),
    ("y ~ agee", {}, r"names 'agee', which is no column of the frame and no function; did you mean 'age'\?"),
    ("y ~ lg(age)", {}, r"names 'lg' as a function, which it is not; did you mean log\(\)\? \(functions: C, bs"),
    ("y ~ factor(region)", {}, r"names 'factor' as a function, which it is not; did you mean C\(\)\?"),
    ("y ~ odd name", {}, r"Missing operator between `odd` and `name`; a name with spaces goes in backticks"),
    ("claims ~ age", {}, r"outcome names 'claims', which is no column"),
    ("y + age ~ region", {}, r"several terms left of ~, 'y \+ age'; expected one column, or I\(a \+ b\)"),
    ("y ~ y + age", {}, r"formula has 'y' on both sides of ~"),
    ("y ~ start", {}, r"column 'start' has dates; write days\(start\), C\(month\(start\)\)"),
    ("y ~ age + one", {}, r"column 'one' has one level, 'same'; leave it out"),
    ("y ~ age + flat", {}, r"column 'flat' is 3 in all rows"),
    ("y ~ gone", {}, r"of 60 rows, 'gone' misses 1; say missing='drop', or .*missing=\{'gone': 'median'\}"),
    ("dead ~ age", {}, r"of 60 rows, 'dead' misses 1; say missing='drop' to leave such rows out"),
    ("dead ~ gone", {}, r"missing=\{'dead': 'drop', 'gone': 'median'\}"),
    ("y ~ log(low)", {}, r"'log\(low\)' is nan in row 1"),
    ("y ~ lag(age)", {}, r"formula uses lag\(\), which looks at other rows"),
    ("y ~ offset(log(agee))", {}, r"offset names 'agee'.*did you mean 'age'"),
    ("y ~ offset(log(low))", {}, r"offset\(log\(low\)\) is nan in row 1"),
    ("y ~ age - offset(age)", {}, r"an offset is added: write offset\(-\(age\)\)"),
    ("y ~ (age | )", {}, r"\(age \| \) is no varying effect; expected what varies and over what"),
    ("y ~ (1 | rigion)", {}, r"names 'rigion'.*did you mean 'region'"),
    ("y ~ (1 | region) + (age | region)", {}, r"varies twice over 'region'; put both into one"),
    ("y ~ (1 | one)", {}, r"\(1 \| one\): 'one' has one level"),
    ("low ~ age", {"family": "poisson"}, r"'low' is -1 in row 1; the family 'poisson' needs whole numbers from 0"),
    ("cost ~ age", {"family": "poisson"}, r"'cost' is .* in row 1; the family 'poisson'"),
    ("low ~ age", {"family": "gamma"}, r"'low' is -1 in row 1; the family 'gamma' needs numbers above 0"),
    ("share ~ age", {"family": "beta"}, r"'share' is 1 in row 10; .* between 0 and 1, both excluded"),
    ("y ~ age", {"family": "bernoulli"}, r"'y' is .*; the family 'bernoulli' needs 0 and 1, truth values, or two levels"),
    ("grade ~ age", {"family": "bernoulli"}, r"'grade' has 3 levels \(high, low, middle\); expected two; .*'categorical'"),
    ("grade ~ age", {"family": "ordinal"}, r"'grade' is text without an order; say levels=\{'grade': \['high', "),
    ("region ~ age", {"family": "gaussian"}, r"the outcome 'region' is text \('North', ...\); .* needs numbers"),
    ("flat ~ age", {"family": "gaussian"}, r"'flat' is 3 in all rows; expected an outcome that varies"),
    ("y ~ age", {"family": "binomial"}, r"'binomial' needs trials: write proportion\(y, trials\)"),
    ("proportion(y) ~ age", {"family": "binomial"}, r"proportion\(\) has 1 parts"),
    ("proportion(cost, n) ~ age", {"family": "binomial"}, r"'cost' is .* in row 1; the family 'binomial' needs whole numbers"),
    ("proportion(age, n) ~ region", {"family": "poisson"}, r"proportion\(\) is for the family 'binomial'"),
    ("censored(cost, y) ~ age", {"family": "weibull"}, r"'y' is .*an event is 1 where it happened"),
    ("censored(cost, y) ~ age", {"family": "gaussian"}, r"censored\(\) is for the families 'exponential' and 'weibull'"),
    ("grade ~ (1 | region)", {"family": "categorical"}, r"'categorical' has no varying effects"),
    ("grade ~ 0 + age", {"family": "ordinal", "levels": {"grade": ["low", "middle", "high"]}}, r"thresholds in place of"),
    ("y ~ age", {"missing": {"agee": "mean"}}, r"missing names 'agee', which the formula does not use; it uses y, age"),
    ("y ~ age", {"missing": 7}, r"missing is 7; expected 'drop', or by column"),
    ("y ~ gone", {"missing": {"gone": "none"}}, r"missing\['gone'\] is 'none', but 'gone' has numbers"),
    ("y ~ age", {"weights": "w"}, r"weights names 'w'"),
    ("y ~ age", {"weights": "low"}, r"weights 'low' is -1 in row 1; expected 0 or more"),
    ("y ~ region", {"levels": {"region": ["North"]}}, r"levels\['region'\] does not have 'South'"),
    ("y ~ region", {"levels": {"plan": ["a"]}}, r"levels names 'plan', which the formula does not use"),
    ("y ~ age", {"frame": 7}, r"frame is 7; expected a pandas or polars frame"),
    ("y ~ age", {"frame": {"y": [1, 2], "age": [1.0]}}, r"columns have different numbers of rows"),
    ("y ~ age", {"frame": FRAME.iloc[:0]}, r"the frame has no rows"),
    ("y ~ age", {"frame": pd.concat([FRAME, FRAME["age"]], axis=1)}, r"two columns named 'age'; rename one"),
    ("y ~ age", {"frame": FRAME.assign(age=np.inf)}, r"column 'age' is infinite near row 1"),
    ("y ~ age", {"frame": "nowhere.csv"}, r"there is no file 'nowhere.csv'"),
]  # fmt: skip


@pytest.mark.parametrize(("formula", "told", "message"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_what_is_wrong_is_named_in_a_line(formula, told, message):
    told = dict(told)
    frame, (family, link) = told.pop("frame", FRAME), find_family(told.pop("family", "gaussian" if formula != 3 else "poisson"))
    with pytest.raises(sgmcmc.InputError, match=message) as caught:
        in_memory(*build_design(formula, frame, family, link, **told))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


CALLS = [
    ({"family": "possion"}, r"family is 'possion'; did you mean 'poisson'; expected one of 'gaussian'"),
    ({"family": "logistic"}, r"family is 'logistic'; did you mean 'bernoulli'"),
    ({"family": "gauss ian"}, r"did you mean 'gaussian'"),
    ({"family": 7}, r"family is 7; expected one of 'gaussian'"),
    ({"family": "poisson", "link": "logit"}, r"link is 'logit'; the family 'poisson' has 'log'"),
    ({"drawz": 10}, r"glm has no argument 'drawz'; it has"),
    ({"priors": {"agee": sgmcmc.distributions.Normal(0, 1)}}, r"priors names 'agee', which the model does not have; it has"),
    ({"priors": {"age": 3}}, r"priors\['age'\] is 3; expected a distribution of NumPyro"),
    ({"priors": 3}, r"priors is 3; expected distributions by name"),
]


@pytest.mark.parametrize(("told", "message"), CALLS)
def test_wrong_arguments_of_the_call(told, message):
    with pytest.raises(sgmcmc.InputError, match=message):
        sgmcmc.glm("y ~ age + region", FRAME, progress=False, **told)


@pytest.fixture(scope="module")
def design():
    return build_design("y ~ age + C(region) + bs(cost, df=4) + (1 | grade)", FRAME, *find_family("poisson"))[0]


NEW = [
    ({"region": "East"}, r"'region' is 'East' in row 1, a level that the fit has not seen \(North, South\)"),
    ({"age": np.nan}, r"of 2 rows, 'age' misses 2, first in row 1; fill them, or fit with missing=\{'age': ...\}"),
    ({"age": ["forty", "50"]}, r"column 'age' has numbers in the fit, and text here: 'forty' in row 1; expected numbers"),
    ({"cost": 1e6}, r"bs\(cost, df=4\)"),
]


@pytest.mark.parametrize(("changed", "message"), NEW)
def test_new_rows_that_do_not_fit(design, changed, message):
    with pytest.raises(sgmcmc.InputError, match=message):
        design.rows(FRAME.iloc[:2].assign(**changed)[design.predicting(list(FRAME))], outcome=False)


def test_new_frames_without_a_column(design):
    with pytest.raises(sgmcmc.InputError, match="the new frame has no column 'age'; it needs age, region, cost, grade"):
        design.predicting(["region"])


def test_new_levels_of_a_grouping_are_no_mistake(design):
    new = FRAME.iloc[:2].assign(grade="new")
    assert design.rows(new, outcome=False)["group of grade"].tolist() == [-1, -1]


def test_levels_that_are_too_many_for_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.normal(size=4000), "x": rng.normal(size=4000), "id": [f"i{i}" for i in range(4000)]})
    message = r"term 'x:id' would be 4,000 columns, as id has 4,000 levels; let it vary: \(x \| id\)"
    with pytest.raises(sgmcmc.InputError, match=message):
        build_design("y ~ x + x:id", frame, *find_family("gaussian"))
