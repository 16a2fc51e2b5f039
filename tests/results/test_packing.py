"""Trees as JSON and arrays: every bit comes back, and nothing is guessed."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc import InputError, State
from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.algorithms.gradients.second_order import CurvedCentre, Matrix
from sgmcmc.algorithms.gradients.whitened import WhitenedState
from sgmcmc.problem.arrow import Arrow, ArrowWhitening, Layout
from sgmcmc.problem.whitening import Whitening
from sgmcmc.results.packing import fill, outline, pack, unpack
from sgmcmc.results.words import Decisions


class Pair(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_pytree_node_class
class Box:
    """A node that only its own class can build."""

    def __init__(self, inside, label):
        self.inside, self.label = inside, label

    def tree_flatten(self):
        return (self.inside,), self.label

    @classmethod
    def tree_unflatten(cls, label, children):
        return cls(*children, label)


def through_files(tree, folder, *likes, then=None):
    """Packed, through JSON and npy files without pickle, and unpacked."""
    spec, arrays = pack(tree, *likes)
    text = json.dumps(spec, allow_nan=False)
    np.savez(folder / "a.npz", *arrays)
    with np.load(folder / "a.npz", allow_pickle=False) as file:
        loaded = [file[name] for name in file.files]
    return unpack(json.loads(text), loaded, *(likes if then is None else then))


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "int32", "uint32", "int8", "bool"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (2, 3)])
def test_every_bit_of_every_dtype(dtype, shape, tmp_path):
    dtype = jnp.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(1).integers(0, 2 if dtype.kind == "b" else 256, size, dtype=np.uint8)
    array = raw.view(dtype).reshape(shape)  # NaNs with payloads among them
    back = through_files({"x": array, "y": array.T}, tmp_path)
    assert same_bits(back["x"], array)
    assert same_bits(back["y"], array.T)
    assert isinstance(back["x"], np.ndarray)


def test_nan_payloads(tmp_path):
    array = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000], np.uint32).view(np.float32)
    assert same_bits(through_files([array], tmp_path)[0], array)
    assert same_bits(through_files([jnp.asarray(array)], tmp_path)[0], array)


def test_kinds_of_numbers_stay_what_they_are(tmp_path):
    tree = {
        "none": None, "yes": True, "whole": 2**70, "tiny": 5e-324, "third": 1 / 3, "inf": -np.inf, "text": "ε", "nothing": [],
        "numpy": np.float64(0.1), "small": np.float32(0.1), "bfloat16": jnp.bfloat16(1.5), "device": jnp.float32(3.0),
        "nested": [(1, [2.0]), {"a": ()}],
    }  # fmt: skip
    back = through_files(tree, tmp_path)
    assert list(back) == list(tree)
    for name, value in tree.items():
        assert back[name] == value, name
        assert isinstance(back[name], jax.Array) if isinstance(value, jax.Array) else type(back[name]) is type(value), name
    assert np.isnan(through_files(float("nan"), tmp_path))


def test_double_precision_is_not_lost_on_the_way(tmp_path, x64):
    value = jnp.asarray(np.pi)
    spec, arrays = pack(value)
    assert unpack(spec, arrays).dtype == np.float64
    with jax.enable_x64(False):
        assert same_bits(unpack(spec, arrays), value)  # JAX would round it; NumPy keeps it


def a_state(params, chains=3):
    many = jax.tree.map(lambda x: jnp.stack([x + k for k in range(chains)]), params)
    whitening = Whitening(params, jnp.eye(2), dense=True)
    centre = Centre(params, params, np.float64(0.01), True)
    key = jnp.zeros((chains, 2), jnp.uint32)
    return State(
        jnp.int32(7), key, many, jnp.ones((chains, 2)), jnp.ones((chains, 2)), {"momentum": many},
        WhitenedState(whitening, centre), key[0],
    )  # fmt: skip


TREES = {
    "dict": {"b": jnp.float32(1), "a": jnp.arange(2.0)},
    "named tuple": Pair(jnp.float32(1), {"c": jnp.arange(2.0)}),
    "custom": {"net": Box([jnp.float32(1), Pair(jnp.arange(2.0), None)], "label"), "sd": jnp.float32(2)},
    "list": [jnp.float32(1), (jnp.arange(2.0),)],
    "bare": jnp.arange(2.0),
}


@pytest.mark.parametrize("name", TREES)
def test_a_state_comes_back_whole(name, tmp_path):
    params = TREES[name]
    state = a_state(params)
    back = through_files({"state": state, "done": 3}, tmp_path, params)
    assert back["done"] == 3
    assert jax.tree.structure(back["state"]) == jax.tree.structure(state)
    assert all(map(same_bits, jax.tree.leaves(back["state"]), jax.tree.leaves(state)))
    assert back["state"].estimator.whitening.dense is True


@pytest.mark.parametrize("shape", ["arrow", "matrix"])
def test_a_centre_with_its_curvature_comes_back_whole(shape, tmp_path):
    params = {"mu": jnp.zeros(2), "u": jnp.arange(6.0).reshape(3, 2)}
    layout = Layout((None, 0), ((2,), (3, 2)))
    arrow = Arrow(jnp.eye(2), jnp.ones((3, 2, 2)) / 7, jnp.stack([3 * jnp.eye(2)] * 3))
    whitening, hessian = ArrowWhitening.of(arrow, params, layout), arrow
    if shape == "matrix":
        whitening, hessian = Whitening(params, jnp.eye(8), dense=True), Matrix(jnp.eye(8) / 3)
    state = WhitenedState(whitening, CurvedCentre(jnp.zeros(8), jnp.ones(8), jnp.float32(0.01), jnp.asarray(True), hessian))
    back = through_files({"est_state": state, "layout": layout}, tmp_path, params)
    assert back["layout"] == layout
    assert hash(back["layout"]) == hash(layout), "it is part of what a program is compiled for"
    assert jax.tree.structure(back["est_state"]) == jax.tree.structure(state)
    assert all(map(same_bits, jax.tree.leaves(back["est_state"]), jax.tree.leaves(state)))
    assert isinstance(back["est_state"].inner, CurvedCentre)
    assert type(back["est_state"].inner.hessian) is type(hessian)


def test_without_the_params_other_nodes_become_dicts_by_name(tmp_path):
    params = TREES["custom"]
    back = through_files(a_state(params), tmp_path, params, then=())
    assert set(back.params) == {"net", "sd"}
    assert len(back.params["net"]) == 2
    for name, leaf in back.params["net"].items():
        assert same_bits(leaf, back.auxiliary["momentum"]["net"][name])
    plain = through_files(a_state(TREES["list"]), tmp_path, TREES["list"], then=())
    assert jax.tree.structure(plain.params) == jax.tree.structure(TREES["list"])


def test_outlines_follow_the_order_of_leaves():
    tree = {"b": [1, (2, None)], "a": {"z": 3, "y": Pair(4, 5)}, "c": {}}
    leaves, _ = jax.tree.flatten(tree)
    back = fill(json.loads(json.dumps(outline(tree))), iter(leaves))
    assert back == {"a": {"y": {"first": 4, "second": 5}, "z": 3}, "b": [1, (2, None)], "c": {}}
    assert outline({1: 2}) == {"names": ["1"]}


def test_several_likes_each_bring_their_nodes(tmp_path):
    params, other = TREES["dict"], Pair(jnp.zeros(2), jnp.ones(3))
    tree = {"params": params, "mean": Pair(np.zeros(2), np.ones(3)), "again": [params]}
    back = through_files(tree, tmp_path, params, other)
    assert isinstance(back["mean"], Pair)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert set(through_files(tree, tmp_path, params, other, then=(params,))["mean"]) == {"first", "second"}


def test_decisions_come_back(tmp_path):
    made = Decisions().and_then("thin", 3, "Three.").and_then("metric", np.arange(3.0), "So.")
    back = through_files(made, tmp_path)
    assert str(back) == str(made)
    assert back["thin"] == 3
    assert same_bits(back["metric"], made["metric"])


@pytest.mark.parametrize(
    "wrong", [{"a": {1: 2}}, {"a": Pair(1, 2)}, {"a": np.array([None])}, {"a": jax.random.key(1)}, {"a": {3}}]
)
def test_what_cannot_be_rebuilt_is_refused_by_name(wrong):
    with pytest.raises(InputError, match=r"^a is .*cannot be saved"):
        pack(wrong)


def test_another_like_is_refused():
    spec, arrays = pack({"a": TREES["dict"]}, TREES["dict"])
    with pytest.raises(InputError, match="has leaves other; expected the one packed"):
        unpack(spec, arrays, {"other": jnp.zeros(2)})
