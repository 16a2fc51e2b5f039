"""Effects relative to their locations and scales: the same density as NumPyro's own reparametrisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import reparam
from numpyro.infer.reparam import LocScaleReparam
from numpyro_models import NESTED, Case, away_from, log_density_of_all

import sgmcmc
from sgmcmc.problem.centring import PartlyCentred
from sgmcmc.problem.posterior import make_transform

C = {"v": 0.3, "u": np.array([0.0, 0.2, 0.7, 0.9])}


@pytest.mark.usefixtures("x64")
def test_position_there_and_back_with_the_density_of_the_other_model():
    model = sgmcmc.from_numpyro(NESTED.model, NESTED.data, static=NESTED.static)
    outer, params = make_transform(model.constraints, model.params), away_from(model)
    transform = PartlyCentred(outer, model.loc_scale, tuple(C.items()))
    position = jax.jit(transform.to_position)(params)
    back = jax.jit(transform.to_params)(position)
    for name in params:
        np.testing.assert_allclose(back[name], params[name], rtol=1e-12)

    config = {"v": LocScaleReparam(C["v"]), "u": LocScaleReparam(C["u"], shape_params=["df"])}
    other = Case(reparam(NESTED.model, config=config), NESTED.data, NESTED.static)
    decentred = {name: jnp.asarray(value) for name, value in outer.to_params(position).items()}
    decentred = {f"{name}_decentered" if name in C else name: value for name, value in decentred.items()}
    mine = log_density_of_all(NESTED, params) + transform.log_det(position) - outer.log_det(position)
    assert abs(mine / log_density_of_all(other, decentred) - 1) < 1e-12
    assert abs(mine / log_density_of_all(NESTED, params) - 1) > 1e-3  # the volume counts
