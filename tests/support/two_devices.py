"""What tests/run/test_devices.py starts with two forced host devices: chains on both, and rows in two strata."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc
import sgmcmc.run.loop
from sgmcmc.run.spread import make_spread

rng = np.random.default_rng(3)
data = {"x": rng.normal(1.0, 1.0, (1000, 2)).astype(np.float32)}
start = {"mu": np.zeros(2, np.float32)}
KEEPS = {
    "draws": sgmcmc.Trace(),
    "some": sgmcmc.Trace(lambda params: params["mu"].sum(), thin=7),
    "moments": sgmcmc.Moments(covariance=True),
    "square": sgmcmc.Expectation(lambda params: params["mu"] ** 2),
}


def log_lik(params, batch):
    return -0.5 * jnp.sum((batch["x"] - params["mu"]) ** 2)


def on_one_device(function):
    sgmcmc.run.loop.make_spread = lambda chains, strata: None if strata == 0 else make_spread(chains, strata)
    try:
        return function()
    finally:
        sgmcmc.run.loop.make_spread = make_spread


def kept(rows, chains):
    options = {"minibatch_size": 50, "rows": rows, "n_iters": 200, "thin": 2, "burn_in": 11, "seed": 1, "progress": False}
    out = sgmcmc.sghmc(log_lik, data, start, 1e-4, n_chains=chains, keep=KEEPS, diagnose=True, **options)
    moments = out.kept["moments"]
    values = {"draws": out["mu"], "some": out.kept["some"], "mean": moments.mean["mu"], "covariance": moments.covariance}
    pairs = {"positions": out.pairs.positions, "gradients": out.pairs.gradients}
    return {**values, **pairs, "square": out.kept["square"]}, out.settings["devices"]


def diverged():
    """Chains that triple with every step, and start far from each other: chain 2 leaves the finite numbers first, then chain 0.

    On two devices the first device goes on without chain 2, until chain 0 leaves.
    """
    sampler = sgmcmc.sgld_setup(log_lik, data, start, 8e-3, minibatch_size=50, progress=False)
    state = sampler.init(seed=1, n_chains=4, progress=False)
    state = sampler.replace(state, {"mu": jnp.ones((4, 2)).at[2].set(1e30).at[0].set(1e20)})
    try:
        sampler.run(state, 500, progress=False)
    except sgmcmc.DivergenceError as error:
        result = error.result
        return np.asarray([error.step, error.chain, result.final_state.step]), result["mu"]
    raise AssertionError("no chain left the finite numbers")


def saga():
    """Every chain's table lies where the chain does."""
    sampler = sgmcmc.sampler_setup(log_lik, data, start, 1e-4, gradient="saga", minibatch_size=50, progress=False)
    result = sampler.run(sampler.init(seed=1, n_chains=4, progress=False), 100, progress=False)
    return result["mu"], result.final_state.estimator["table"]["mu"]


def main(file):
    assert len(jax.devices()) == 2
    found = {}
    for rows in ("random", "window"):
        spread, devices = kept(rows, 4)
        alone, device = on_one_device(lambda rows=rows: kept(rows, 4))
        assert (devices, device) == (2, 1)
        found |= {
            f"{rows} {name} {place}": x for place, values in (("two", spread), ("one", alone)) for name, x in values.items()
        }
    assert kept("window", 3)[1] == 1  # three chains do not fill two devices
    for place, (where, draws) in (("two", diverged()), ("one", on_one_device(diverged))):
        found |= {f"diverged at {place}": where, f"diverged draws {place}": draws}
    for place, (draws, table) in (("two", saga()), ("one", on_one_device(saga))):
        found |= {f"saga draws {place}": draws, f"saga table {place}": table}
    found |= strata()
    np.savez(file, **{name: np.asarray(value) for name, value in found.items()})


def strata():
    """A location model has no gradient noise under control variates: strata or not, the chain is that of the full gradient."""
    halves, found = sgmcmc.hosts.stratum(data, devices=2), {}
    for place, dataset in (("one", data), ("two", halves)):
        sampler = sgmcmc.sgldcv_setup(log_lik, dataset, start, 1e-4, minibatch_size=100, progress=False)
        state = sampler.init(seed=1, n_chains=2, progress=False)
        result = sampler.run(state, 100, progress=False)
        stepped = sampler.step(state)
        found |= {f"strata draws {place}": result["mu"], f"strata step {place}": stepped.params["mu"]}
    assert result.settings["strata"] == 2
    for wrong in ({"rows": "importance"}, {"stepsize": "auto"}):
        try:
            sgmcmc.sgldcv_setup(log_lik, halves, start, **{"stepsize": 1e-4, "minibatch_size": 100, "progress": False, **wrong})
            raise AssertionError(wrong)
        except sgmcmc.InputError as error:
            found[f"refusal of {next(iter(wrong))}"] = str(error)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
