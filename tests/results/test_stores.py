"""What keep objects hand over to the host: restored from a checkpoint to the last bit, and no larger for a longer run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.results.quantiles import Quantiles, QuantileValues


def square(params):
    return {"square": params["mu"] ** 2, "s": params["s"]}


STORED = {
    "moments": sgmcmc.Moments(thin=3),
    "covariance": sgmcmc.Moments(covariance=True),
    "expectation": sgmcmc.Expectation(square),
    "numbers": sgmcmc.Expectation(lambda p: (p["s"], None)),
    "quantiles": Quantiles(size=20),
    "function": Quantiles((0.1, 0.5), square, thin=3, size=20),
}


def chunks(keep, n_chunks, n_chains=None, length=11):
    """What `keep` hands over of random draws, chunk by chunk, the last iteration of each not counting; and the parameters."""
    front = () if n_chains is None else (n_chains,)
    params = {"mu": jnp.zeros((*front, 2)), "s": jnp.zeros(front)}

    @jax.jit
    def chunk(carry, draws):
        def look(work, t):
            seen = jax.tree.map(lambda x: x[t], draws)
            return keep.update(work, seen, 1.0 / (1 + t), t < length - 1, n_chains is not None), None

        work = keep.open(carry, params, length, n_chains is not None)
        return keep.close(jax.lax.scan(look, work, jnp.arange(length))[0])

    rng, carry, pieces = np.random.default_rng(0), keep.begin(), []
    for _ in range(n_chunks):
        carry, piece = chunk(carry, jax.tree.map(lambda x: rng.normal(3.0, 1.0, (length, *x.shape)).astype(np.float32), params))
        pieces.append(jax.tree.map(np.asarray, piece))
    return pieces, params


def through_a_file(tree, path):
    """A tree of dicts, lists, arrays, floats and None, written and read again."""
    leaves, structure = jax.tree.flatten(tree)
    assert all(isinstance(leaf, (np.ndarray, float)) for leaf in leaves)
    np.savez(path, *leaves)
    with np.load(path) as file:
        return jax.tree.unflatten(structure, [file[f"arr_{i}"] for i in range(len(leaves))])


@pytest.mark.parametrize("n_chains", [None, 2])
@pytest.mark.parametrize("name", STORED)
def test_a_restored_store_goes_on_to_the_last_bit(name, n_chains, tmp_path):
    keep, chained = STORED[name], n_chains is not None
    pieces, params = chunks(keep, 60, n_chains)
    whole, states = keep.store(params, 600, chained), {}
    for i, piece in enumerate(pieces):
        if i in (0, 1, 35):
            states[i] = whole.state()
        whole.add(piece)
    expected = keep.finish(None, whole)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(_fields(expected)))
    for i, state in states.items():  # asked for long ago: what came later must not have changed it
        resumed = keep.store(params, 600, chained)
        resumed.restore(through_a_file(state, tmp_path / f"{i}.npz"))
        for piece in pieces[i:]:
            resumed.add(piece)
        jax.tree.map(np.testing.assert_array_equal, _fields(keep.finish(None, resumed)), _fields(expected))
        jax.tree.map(np.testing.assert_array_equal, resumed.state(), whole.state())


def _fields(value):
    return dict(vars(value)) if isinstance(value, (sgmcmc.results.keeps.MomentValues, QuantileValues)) else value


def test_a_store_needs_its_whole_state():
    """The control: without one of its parts a store does not give the same."""
    keep = STORED["covariance"]
    pieces, params = chunks(keep, 4)
    stores = [keep.store(params, 40, False) for _ in range(2)]
    for piece in pieces[:2]:
        stores[0].add(piece)
    stores[1].restore(stores[0].state() | {"weight": 1.0})
    for store in stores:
        store.add(pieces[2])
    assert (stores[0].mean["mu"] != stores[1].mean["mu"]).all()


@pytest.mark.parametrize("name", STORED)
def test_memory_does_not_grow_with_the_run(name):
    pieces, params = chunks(STORED[name], 50)
    store, sizes = STORED[name].store(params, 10**6, False), []
    for i in range(1000):
        store.add(pieces[i % len(pieces)])
        sizes.append(sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(store.state())))
    if isinstance(STORED[name], Quantiles):
        numbers, values, size = 3, 9 * 20, 4
        assert max(sizes) < numbers * values * size + 8 * values + 100  # the weights of the values, and a few numbers more
    else:
        assert sizes[10] == sizes[-1]


def test_memory_of_a_trace_does_grow():
    """The control: draws kept are draws held."""
    store = sgmcmc.Trace().store({"mu": jnp.zeros(2)}, 10**4, False)
    sizes = []
    for _ in range(2):
        store.add((np.int32(5), {"mu": np.ones((6, 2), np.float32)}))
        sizes.append(store.draws()["mu"].nbytes)
    assert sizes == [40, 80]
