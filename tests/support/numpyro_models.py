"""NumPyro models as people write them: a function, data, and what `from_numpyro` is told beside these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import mask, reparam, scale
from numpyro.infer.reparam import LocScaleReparam

N, GROUPS = 24, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
GROUP = np.arange(N) % GROUPS
LINE = 0.5 + X @ [1.0, -0.5]
BINARY = (RNG.random(N) < 1 / (1 + np.exp(-LINE))).astype(np.int32)
REAL = LINE + 0.7 * RNG.standard_normal(N)
COUNTS = RNG.poisson(np.exp(0.5 * LINE)).astype(np.int32)
LEVELS = np.digitize(REAL, [-0.5, 1.0]).astype(np.int32)
PAIRS = RNG.standard_normal((N, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])


@dataclass(frozen=True)
class Case:
    """One model."""

    model: Any
    data: dict[str, Any]
    static: dict[str, Any] = field(default_factory=dict)
    plate: Any = None


def coefficients():
    return numpyro.sample("a", dist.Normal(0, 2)), numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))


def without_plate(X, y):
    a, b = coefficients()
    numpyro.sample("y", dist.Bernoulli(logits=a + X @ b), obs=y)


def with_plate(X, y=None):
    a, b = coefficients()
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=a + X @ b), obs=y)


def subsampled(X, y, n):
    a, b = coefficients()
    with numpyro.plate("rows", n, subsample_size=10):
        X, y = numpyro.subsample(X, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=a + X @ b), obs=y)


def indexed(X, y):
    a, b = coefficients()
    with numpyro.plate("rows", N) as i:
        numpyro.sample("y", dist.Bernoulli(logits=a + X[i] @ b), obs=y[i])


def hierarchical(X, y, group, n_groups):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 2)), numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("group", n_groups):
        u = numpyro.sample("u", dist.Normal(mu, tau))
    b, s = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1)), numpyro.sample("s", dist.HalfNormal(2))
    numpyro.deterministic("spread", u.max() - u.min())
    with numpyro.plate("rows", len(y)):
        line = numpyro.deterministic("line", u[group] + X @ b)
        numpyro.sample("y", dist.Normal(line, s), obs=y)


decentred = reparam(hierarchical, config={"u": LocScaleReparam(0.3)})


def schools(y, sd, school, n_schools):
    """Schools of a few pupils each, centred: a funnel."""
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", n_schools):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(theta[school], sd), obs=y)


def nested(y, group, n_groups):
    """Two scales, one above the other."""
    top, upper = numpyro.sample("top", dist.Normal(0, 2)), numpyro.sample("upper", dist.HalfNormal(1))
    v = numpyro.sample("v", dist.Normal(top, upper).expand([2]).to_event(1))
    lower = numpyro.sample("lower", dist.HalfNormal(1).expand([n_groups]).to_event(1))
    with numpyro.plate("group", n_groups):
        u = numpyro.sample("u", dist.StudentT(4, v[jnp.arange(n_groups) % 2], lower))
    numpyro.sample("y", dist.Normal(u[group], 1.0), obs=y)


SCHOOLS = Case(
    schools,
    {"y": 10 * np.random.default_rng(0).standard_normal(40), "sd": np.full(40, 10.0), "school": np.arange(40)},
    {"n_schools": 40},
    "rows",
)
NESTED = Case(nested, {"y": REAL, "group": GROUP}, {"n_groups": GROUPS})


def network(a, b, c):
    """A Bayesian network: c given b given a, all observed."""
    s = numpyro.sample("s", dist.HalfNormal(1).expand([3]))
    w = numpyro.sample("w", dist.Normal(0, 2).expand([2]))
    with numpyro.plate("rows", a.shape[0]):
        a = numpyro.sample("a", dist.Normal(0, s[0]), obs=a)
        b = numpyro.sample("b", dist.Normal(w[0] * a, s[1]), obs=b)
        numpyro.sample("c", dist.Normal(w[1] * b, s[2]), obs=c)


def robust(X, y):
    a, b = coefficients()
    df, s = numpyro.sample("df", dist.Gamma(2, 0.1)), numpyro.sample("s", dist.HalfCauchy(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.StudentT(2 + df, a + X @ b, s), obs=y)


def horseshoe(X, y):
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    lam = numpyro.sample("lam", dist.HalfCauchy(1).expand([X.shape[1]]))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([X.shape[1]]))
    b = numpyro.deterministic("b", tau * lam * z)
    numpyro.sample("y", dist.Normal(X @ b, numpyro.sample("s", dist.HalfNormal(1))), obs=y)


def in_order(n):
    return dist.TransformedDistribution(dist.Normal(0, 2).expand([n]).to_event(1), dist.transforms.OrderedTransform())


def ordinal(X, y, n_levels):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    numpyro.sample("y", dist.OrderedLogistic(X @ b, numpyro.sample("cuts", in_order(n_levels - 1))), obs=y)


def overdispersed(X, y):
    (a, b), k = coefficients(), numpyro.sample("k", dist.Exponential(0.5))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(a + X @ b), k), obs=y)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    centres = numpyro.sample("centres", in_order(2))
    parts = dist.Normal(centres, numpyro.sample("s", dist.HalfNormal(1).expand([2]).to_event(1)))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)


def classes(y):
    """The mixture with the class of every row as it is."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    centres = numpyro.sample("centres", in_order(2))
    s = numpyro.sample("s", dist.HalfNormal(1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(centres[z], s[z]), obs=y)


def correlated(y):
    scales = numpyro.sample("scales", dist.HalfNormal(1).expand([2]).to_event(1))
    corr = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scales[:, None] * corr), obs=y)


def two_sites(X, y, z, seen):
    """Two observed sites, one with a scale and one with a mask, and factors of rows and of parameters."""
    a, b = coefficients()
    s = numpyro.sample("s", dist.HalfNormal(1))
    numpyro.factor("shrink", -0.1 * jnp.abs(b).sum())
    with numpyro.plate("rows", N, subsample_size=8):
        with scale(scale=0.5):
            numpyro.sample("y", dist.Normal(a + X @ b, s), obs=y)
        with mask(mask=seen):
            numpyro.sample("z", dist.Poisson(jnp.exp(0.5 * (a + X @ b))), obs=z)
        numpyro.factor("tilt", -0.01 * (y - a) ** 2)


def two_plates(y, n_terms):
    """Rows and terms, the terms inside: each row has two numbers."""
    with numpyro.plate("term", n_terms, dim=-1):
        mu = numpyro.sample("mu", dist.Normal(0, 2))
        with numpyro.plate("rows", y.shape[0], dim=-2):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


CASES = {
    "no plate": Case(without_plate, {"X": X, "y": BINARY}),
    "plate": Case(with_plate, {"X": X, "y": BINARY}),
    "subsample": Case(subsampled, {"X": X, "y": BINARY}, {"n": N}),
    "constant size": Case(indexed, {"X": X, "y": BINARY}),
    "hierarchical": Case(hierarchical, {"X": X, "y": REAL, "group": GROUP}, {"n_groups": GROUPS}),
    "LocScaleReparam": Case(decentred, {"X": X, "y": REAL, "group": GROUP}, {"n_groups": GROUPS}),
    "Bayesian network": Case(network, {"a": X[:, 0], "b": X[:, 1], "c": REAL}),
    "Student-t": Case(robust, {"X": X, "y": REAL}),
    "horseshoe": Case(horseshoe, {"X": X, "y": REAL}),
    "ordinal": Case(ordinal, {"X": X, "y": LEVELS}, {"n_levels": 3}),
    "negative binomial": Case(overdispersed, {"X": X, "y": COUNTS}),
    "MixtureSameFamily": Case(mixture, {"y": REAL}),
    "LKJ": Case(correlated, {"y": PAIRS}),
    "two observed sites": Case(two_sites, {"X": X, "y": REAL, "z": COUNTS, "seen": RNG.random(N) < 0.7}),
    "two plates": Case(two_plates, {"y": PAIRS}, {"n_terms": 2}),
}


def of_size(n, seed=0):
    """The data of the same models with more rows."""
    rng = np.random.default_rng(seed)
    X, group = rng.standard_normal((n, 2)), (np.arange(n) % 12).astype(np.int32)
    line = 0.5 + X @ [1.0, -0.5]
    real = line + 0.7 * rng.standard_normal(n) + 0.4 * rng.standard_normal(12)[group]
    binary = (rng.random(n) < 1 / (1 + np.exp(-line))).astype(np.int32)
    counts = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.5 * line))).astype(np.int32)
    pairs = rng.standard_normal((n, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    clusters = np.where(rng.random(n) < 0.4, rng.normal(-2, 0.5, n), rng.normal(2, 1.0, n))
    levels = np.digitize(real, [-0.5, 1.0]).astype(np.int32)
    rows, grouped = {"X": X}, {"X": X, "y": real, "group": group}
    return {
        "no plate": Case(without_plate, rows | {"y": binary}),
        "hierarchical": Case(hierarchical, grouped, {"n_groups": 12}),
        "LocScaleReparam": Case(decentred, grouped, {"n_groups": 12}),
        "Bayesian network": Case(network, {"a": X[:, 0], "b": X[:, 1], "c": real}),
        "Student-t": Case(robust, rows | {"y": line + 0.5 * rng.standard_t(4, n)}),
        "ordinal": Case(ordinal, rows | {"y": levels}, {"n_levels": 3}),
        "negative binomial": Case(overdispersed, rows | {"y": counts}),
        "MixtureSameFamily": Case(mixture, {"y": clusters}),
        "LKJ": Case(correlated, {"y": pairs}),
        "two plates": Case(two_plates, {"y": pairs}, {"n_terms": 2}),
    }


BIG = of_size(5000)
"""Models whose posteriors are compared with those of NUTS."""


class Whole(numpyro.primitives.Messenger):
    """For a reference by NumPyro's own means: every plate takes all of its places, in order."""

    def process_message(self, msg):
        if msg["type"] == "plate":
            msg["args"], msg["value"] = (msg["args"][0], msg["args"][0]), jnp.arange(msg["args"][0])


def log_density_of_all(case, params):
    """NumPyro's own, of all rows."""
    from numpyro.infer.util import log_density

    return log_density(Whole(case.model), (), jax.tree.map(jnp.asarray, case.data) | case.static, params)[0]


def away_from(model, seed=0, jitter=0.3):
    """Parameters near the start, inside their constraints."""
    from sgmcmc.problem.posterior import make_transform

    transform = make_transform(model.constraints, model.params)
    rng = np.random.default_rng(seed)
    position = transform.to_position(jax.tree.map(jnp.asarray, model.params))
    return transform.to_params(jax.tree.map(lambda x: x + jitter * rng.standard_normal(x.shape), position))
