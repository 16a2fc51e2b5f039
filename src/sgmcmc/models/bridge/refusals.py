"""Models that minibatches cannot sample, each with the rewriting that they can."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sgmcmc.core.errors import InputError
from sgmcmc.models.bridge.sites import Site, Sites
from sgmcmc.models.bridge.tracing import FEW, MORE, Running


def check_sites(running: Running, sites: Sites) -> None:
    """Refuse what the shapes of the sites show."""
    for said in _wrong(running, sites):
        raise InputError(said)


def _wrong(running: Running, sites: Sites) -> Iterator[str]:
    for name, site in sites.few.items():
        yield from _wrong_with(running, sites, name, site)
    if not any(site.observed for site in sites.few.values()):
        yield "the model observes nothing: no sample statement has obs=, or what it has is None; give the column that it observes"
    if not sites.rows:
        observed = [name for name, site in sites.few.items() if site.observed]
        yield f"site {observed[0]!r} adds up all rows to one number; {ONE_VALUE_PER_ROW}"
    if not sites.parameters:
        yield "the model has no parameter: no sample statement without obs= outside of the rows; nothing is left to sample"


def _wrong_with(running: Running, sites: Sites, name: str, site: Site) -> Iterator[str]:
    if site.kind == "param":
        instead = f"write numpyro.sample({name!r}, ...) with a prior, or give its value as static"
        yield f"site {name!r} is a numpyro.param, which has no prior to sample from; {instead}"
    if site.kind == "mutable":
        yield f"site {name!r} is mutable: a log density must be the same whenever it is asked for; leave it out"
    if site.latent and site.discrete and not sites.in_rows(name):
        instead = (
            "write the mixture of what it may be, with numpyro.factor for each row, or sample a model for each of its values"
        )
        yield f"{name!r} is discrete and one for all rows, so that rows are no sum; {instead}"
    if site.kind != "sample" or not sites.in_rows(name):
        return
    yield from _latent(running, sites, name, site)
    yield from _axes(sites, name, site)


def _latent(running: Running, sites: Sites, name: str, site: Site) -> Iterator[str]:
    if site.observed:
        return
    if site.discrete:
        yield from _discrete(name, site)
        return
    if name.endswith("_unobserved"):
        instead = "leave rows without an observation out, or wrap the statement into numpyro.handlers.mask(mask=...)"
        yield f"obs_mask= makes {name!r}, a latent number for every row; {instead}"
    growing = sites.plates
    same = [plate for plate, _, _ in site.plates if plate in growing]
    if same and not running.plates and len(growing) > 1:
        found = f"plates {' and '.join(map(repr, growing))} have as many places as the data have rows"
        yield f"{found}, {running.total:,}, and {name!r} is latent in {same[0]!r}; say which is over rows: plate='...'"
    found = f"{name!r} is latent and has a value for every row (its shape is {site.shape} for {FEW} rows)"
    instead = (
        "sum it out (StudentT for a normal with a scale of its own, MixtureSameFamily for a mixture), have one for each group"
    )
    yield f"{found}: minibatches would leave most of them out; {instead} of rows, or sample one for all outside of the plate"


def _discrete(name: str, site: Site) -> Iterator[str]:
    if site.choices == 0:
        instead = "sum it out by hand, or take a distribution with finitely many values, such as Categorical or Binomial"
        yield f"{name!r} is discrete and latent, with values that cannot be counted; {instead}"
    if math.prod(site.shape) != FEW:
        found = f"{name!r} is discrete and latent, with several values in every row (its shape is {site.shape} for {FEW} rows)"
        yield f"{found}; only one is summed over: write MixtureSameFamily in its place"


def _axes(sites: Sites, name: str, site: Site) -> Iterator[str]:
    few, more = site.each, sites.more[name].each
    changed = [k for k, (a, b) in enumerate(zip(few, more, strict=False)) if a != b]
    if len(few) != len(more) or [(few[k], more[k]) for k in changed[:1]] != [(FEW, MORE)]:
        found = f"site {name!r} adds numbers of shape {few} for {FEW} rows, and of shape {more} for {MORE}"
        yield f"{found}; expected one axis that counts the rows"
    if len(changed) > 1:
        found = f"site {name!r} compares every row with every other: it adds {few} numbers for {FEW} rows"
        instead = "an (n,) array met an (n, 1) array; make both the same shape, for instance with jnp.squeeze"
        yield f"{found}, {more} for {MORE}. Often {instead}"


ONE_VALUE_PER_ROW = (
    "expected one value per row: leave .sum() out of numpyro.factor, and .to_event(1) where it covers the rows; rows that depend "
    "on each other, as in a Gaussian process, cannot be drawn one by one"
)
