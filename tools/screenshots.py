"""The pictures of a report in docs/assets: a fit of made-up claims, its page, and Chromium at two widths: `make screenshots`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import sgmcmc
from tools.browser import browser

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
SIGHTS = {"report-desk.png": (1280, False, 1780), "report-phone.png": (390, True, 1780)}
"""By file: pixels of width, whether dark, and pixels of height at most."""

REGIONS = ["North", "South", "East", "West", "Coast", "Islands", "Capital", "Lakes"]
TERMS = ["age", "power", "bonus", "density", "fuel"]


def log_rate(params: Any, rows: Any) -> jax.Array:
    return params["intercept"] + rows["X"] @ params["beta"] + params["u"][rows["region"]]


def log_lik(params: Any, rows: Any) -> jax.Array:
    return (rows["claims"] * log_rate(params, rows) - jnp.exp(log_rate(params, rows))).sum()


def log_prior(params: Any) -> jax.Array:
    spread = sgmcmc.distributions.Normal(0.0, params["tau"]).log_prob(params["u"]).sum()
    return spread - params["tau"] - 0.5 * (params["intercept"] ** 2 / 25 + (params["beta"] ** 2).sum())


def claims(rows: int = 200_000) -> sgmcmc.Model:
    rng = np.random.default_rng(0)
    data = {"X": rng.standard_normal((rows, len(TERMS)), np.float32), "region": rng.integers(0, len(REGIONS), rows)}
    rate = np.exp(-2.0 + data["X"] @ [0.3, -0.2, 0.0, 0.1, 0.05] + rng.normal(0, 0.3, len(REGIONS))[data["region"]])
    start = {"intercept": -2.0, "beta": np.zeros(len(TERMS)), "u": np.zeros(len(REGIONS)), "tau": 0.5}
    return sgmcmc.Model(
        log_lik, data | {"claims": rng.poisson(rate)}, start, log_prior,
        constraints={"tau": sgmcmc.constraints.positive},
        coords={"term": TERMS, "region": REGIONS}, dims={"beta": ["term"], "u": ["region"]}, observed=("claims",),
        mean=lambda params, some: jnp.exp(log_rate(params, some)),
        simulate=lambda key, params, some: {"claims": jax.random.poisson(key, jnp.exp(log_rate(params, some)))},
    )  # fmt: skip


def main() -> None:
    fit = sgmcmc.sample(claims(), seed=1)
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        page = fit.report(Path(folder) / "fit.html", title="Claims by region")
        for name, (width, dark, height) in SIGHTS.items():
            tab.open(page, width, dark=dark)
            tab.picture(ASSETS / name, most=height)
            small = Image.open(ASSETS / name).convert("RGB").quantize(128, dither=Image.Dither.NONE)
            small.save(ASSETS / name, optimize=True)


if __name__ == "__main__":
    main()
