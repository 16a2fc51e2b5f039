"""The trajectory of NUTS: Hoffman and Gelman (2014), with the multinomial draws of Betancourt (2017).

Momenta are in the units of a factor L of the covariance: with z' = z + ε L p and p' = p - ε Lᵀ∇U they are standard normal,
and a trajectory turns where they say so, whatever L.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

DEEPEST = 10
"""Doublings of a trajectory at most: 1,023 leapfrogs."""

DIVERGING = 1000.0
"""How much energy a trajectory may gain before it is given up."""

Motion = Callable[["Place", jax.Array, jax.Array], tuple["Place", jax.Array]]
"""The place and momentum a step on, from a place, a momentum there and the size of the step."""


class Place(NamedTuple):
    """Where a trajectory may end: a position, the potential there and its slope."""

    z: jax.Array
    potential: jax.Array
    slope: jax.Array


class Half(NamedTuple):
    """What is added to a tree, leaf by leaf.

    Attributes:
        place, p: the last leaf and the momentum there.
        chosen: one of the leaves, drawn by weight.
        weight: the log of all weights together.
        momenta: summed.
        opened: the momentum of the first leaf and `momenta` up to it, of every subtree that is not complete, by depth.
        leaves: how many.
        accepted: the probabilities of the leaves beside that of the start, at most 1 each, summed.
        turned, diverged: whether a subtree turned, or energy was gained.
    """

    place: Place
    p: jax.Array
    chosen: Place
    weight: jax.Array
    momenta: jax.Array
    opened: jax.Array
    leaves: jax.Array
    accepted: jax.Array
    turned: jax.Array
    diverged: jax.Array


class Tree(NamedTuple):
    """A trajectory: its ends, each a place and the momentum there, and as above. `done` when it turned, diverged or is deep."""

    left: tuple[Place, jax.Array]
    right: tuple[Place, jax.Array]
    chosen: Place
    weight: jax.Array
    momenta: jax.Array
    depth: jax.Array
    leapfrogs: jax.Array
    accepted: jax.Array
    diverged: jax.Array
    done: jax.Array


def trajectory(
    potential: Callable[[jax.Array], jax.Array], start: Place, step: jax.Array, factor: jax.Array, key: jax.Array
) -> Tree:
    """From a place, with a fresh momentum, doubled to either side until it turns, diverges or is as deep as may be."""
    of_momentum, of_tree = jax.random.split(key)
    p, move = jax.random.normal(of_momentum, start.z.shape, start.z.dtype), _leapfrog(jax.value_and_grad(potential), factor)
    energy, zero, no = start.potential + p @ p / 2, jnp.int32(0), jnp.array(False)
    none = jnp.zeros_like(energy)
    tree = Tree((start, p), (start, p), start, none, p, zero, zero, none, no, no)

    def doubled(tree: Tree) -> Tree:
        of_doubling, of_half = jax.random.split(jax.random.fold_in(of_tree, tree.depth))
        uniform = jax.random.uniform(of_doubling, (2,), p.dtype)
        right = uniform[0] < 0.5
        end, eps = _select(right, tree.right, tree.left), jnp.where(right, step, -step)
        half = _half(move, end, eps, 1 << tree.depth, energy, of_half)
        last, momenta, fails = (half.place, half.p), tree.momenta + half.momenta, half.turned | half.diverged
        left, right = _select(right, tree.left, last), _select(right, last, tree.right)
        taken = ~fails & (jnp.log(uniform[1]) < half.weight - tree.weight)  # what is far is preferred
        done = fails | _turned(left[1], right[1], momenta) | (tree.depth + 1 == DEEPEST)
        weight, leaves, accepted = (
            jnp.logaddexp(tree.weight, half.weight),
            tree.leapfrogs + half.leaves,
            tree.accepted + half.accepted,
        )
        chosen = _select(taken, half.chosen, tree.chosen)
        return Tree(left, right, chosen, weight, momenta, tree.depth + 1, leaves, accepted, half.diverged, done)

    return jax.lax.while_loop(lambda tree: ~tree.done, doubled, tree)


def _half(
    move: Motion, end: tuple[Place, jax.Array], eps: jax.Array, leaves: jax.Array, energy: jax.Array, key: jax.Array
) -> Half:
    """So many leaves beyond an end, or fewer where these turn or diverge before."""
    place, p = end
    none, zero, no = jnp.zeros_like(energy), jnp.int32(0), jnp.array(False)
    opened = jnp.zeros((DEEPEST, 2, p.size), p.dtype)
    half = Half(place, p, place, none - jnp.inf, jnp.zeros_like(p), opened, zero, none, no, no)

    def longer(half: Half) -> Half:
        place, p = move(half.place, half.p, eps)
        gain = energy - place.potential - p @ p / 2
        gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
        weight, momenta = jnp.logaddexp(half.weight, gain), half.momenta + p
        uniform = jax.random.uniform(jax.random.fold_in(key, half.leaves), (), p.dtype)
        chosen = _select(jnp.log(uniform) < gain - weight, place, half.chosen)
        opened, turned = _subtrees(half.opened, half.leaves, p, momenta)
        accepted = half.accepted + jnp.exp(jnp.minimum(gain, 0.0))
        return Half(place, p, chosen, weight, momenta, opened, half.leaves + 1, accepted, turned, gain < -DIVERGING)

    return jax.lax.while_loop(lambda half: (half.leaves < leaves) & ~half.turned & ~half.diverged, longer, half)


def _subtrees(opened: jax.Array, leaf: jax.Array, p: jax.Array, momenta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What every second leaf opens; and whether one of the subtrees that the others complete turned."""
    depths, depth = jnp.arange(DEEPEST), jnp.bitwise_count(leaf >> 1).astype(jnp.int32)
    complete = jnp.bitwise_count(leaf & ~(leaf + 1)).astype(jnp.int32)
    opens = ((depths == depth) & (leaf % 2 == 0))[:, None, None]
    opened = jnp.where(opens, jnp.stack([p, momenta]), opened)
    first, before = opened[:, 0], opened[:, 1]
    ends = (depths <= depth) & (depths > depth - complete)
    return opened, (ends & _turned(first, p, momenta - before + first)).any()


def _leapfrog(gradient: Callable[[jax.Array], tuple[jax.Array, jax.Array]], factor: jax.Array) -> Motion:
    def times(factor: jax.Array, vector: jax.Array) -> jax.Array:
        return factor @ vector if factor.ndim == 2 else factor * vector

    def move(place: Place, p: jax.Array, eps: jax.Array) -> tuple[Place, jax.Array]:
        p = p - eps / 2 * times(factor.T, place.slope)
        z = place.z + eps * times(factor, p)
        there = Place(z, *gradient(z))
        return there, p - eps / 2 * times(factor.T, there.slope)

    return move


def _turned(first: jax.Array, last: jax.Array, momenta: jax.Array) -> jax.Array:
    """Whether a trajectory comes back at either end, by the sum of its momenta, those at the ends counted half."""
    between = momenta - (first + last) / 2
    return ((first * between).sum(axis=-1) <= 0) | ((last * between).sum(axis=-1) <= 0)


def _select(condition, one, other):
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), one, other)
