"""How the compiled loop is laid out over devices: chains over those of a process, strata of rows over all processes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sgmcmc.core.trees import PyTree, State, tree_map
from sgmcmc.rows.sources import STRATA, Source

CHAINS = "chains"
"""The mesh axis along which chains lie. Nothing is ever communicated along it."""


@dataclass(frozen=True)
class Spread:
    """A mesh of devices: strata × chains. Each process has its strata and, for these, all chains."""

    mesh: Mesh

    @property
    def devices(self) -> int:
        """Devices over which the chains are spread."""
        return self.mesh.shape[CHAINS]

    @property
    def over_processes(self) -> bool:
        return self.mesh.is_multi_process

    def map(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """`function`, traced once, run by every device on its own part."""
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def place(self, tree: PyTree, specs: PyTree) -> PyTree:
        """This process's arrays as parts of the mesh's. `specs` is a prefix of the tree."""

        def placed(spec: P, part: PyTree) -> PyTree:
            here = NamedSharding(self.mesh.local_mesh, spec)
            part = tree_map(lambda x: x if getattr(x, "sharding", None) == here else jax.device_put(x, here), part)
            return tree_map(lambda x: self._joined(x.shape, spec, _parts(x)), part) if self.over_processes else part

        return tree_map(placed, specs, tree, is_leaf=lambda spec: isinstance(spec, P))

    def _joined(self, shape: tuple[int, ...], spec: P, parts: list[jax.Array]) -> jax.Array:
        """One array of the whole mesh; `shape` is that of this process's part."""
        if len(spec) and spec[0] == STRATA:
            shape = (shape[0] * self.mesh.shape[STRATA] // self.mesh.local_mesh.shape[STRATA], *shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self.mesh, spec), parts)

    def taken(self, tree: PyTree) -> PyTree:
        """The reverse of `place`, for arrays that are the same in all strata: this process's copies, readable like any array."""
        if not self.over_processes:
            return tree

        def take(x: jax.Array) -> jax.Array:
            assert isinstance(x.sharding, NamedSharding)
            here = NamedSharding(self.mesh.local_mesh, x.sharding.spec)
            return jax.make_array_from_single_device_arrays(x.shape, here, _parts(x))

        return tree_map(take, tree)

    def gather(self, source: Source, drawn: PyTree, count: int) -> list[PyTree]:
        """The plan of every device of this process, each gathered on the host by a thread of its own."""
        tasks = [
            (part, _chains_of(numbers, place, len(row)))
            for (part, numbers), row in zip(source.shares(drawn), self.mesh.local_mesh.devices, strict=True)
            for place in range(len(row))
        ]
        with ThreadPoolExecutor(len(tasks)) as pool:
            return list(pool.map(lambda task: task[0].prepare(task[1], count), tasks))

    def put(self, source: Source, plans: list[PyTree], chained: bool) -> PyTree:
        """The plans as one, each in the memory of its device."""
        grid, spec = self.mesh.local_mesh.devices, self.plan_spec(source.strata > 0, chained)
        placed = [jax.device_put(plan, device) for plan, device in zip(plans, grid.flat, strict=True)]

        def join(*parts: jax.Array) -> jax.Array:
            rows, chains = grid.shape
            first, *others = parts[0].shape
            if chains > 1:
                others[0] *= chains
            return self._joined((rows * first, *others), spec, list(parts))

        return tree_map(join, *placed)

    def plan_spec(self, in_strata: bool, chained: bool) -> P:
        """A plan's first axis is the iteration: strata lie along it one after the other, as if each had iterations of its own."""
        strata = STRATA if in_strata else None
        return P(strata, CHAINS) if chained and self.devices > 1 else P(strata)

    def data_spec(self, in_strata: bool) -> P:
        return P(STRATA) if in_strata else P()


@lru_cache(maxsize=16)
def make_spread(chains: int | None, strata: int) -> Spread | None:
    """The mesh for so many chains and for so many strata in each process (0 where rows are not in strata).

    Chains use the largest number of devices that divides theirs. None where one device does it all.
    """
    mine = jax.local_devices() if strata == 0 else jax.devices()
    per_process = len(jax.local_devices()) // max(1, strata)
    across = max((k for k in range(1, per_process + 1) if (chains or 1) % k == 0), default=1)
    if strata == 0:
        return Spread(Mesh(np.asarray(mine[:across]).reshape(1, across), (STRATA, CHAINS))) if across > 1 else None
    by_process = [[d for d in mine if d.process_index == p][: strata * across] for p in range(jax.process_count())]
    return Spread(Mesh(np.asarray(by_process).reshape(-1, across), (STRATA, CHAINS)))


def specs_of(axes: PyTree, chained: bool) -> PyTree:
    """Which leaves lie along the chains' devices, from where `jax.vmap` has the chains."""
    return tree_map(lambda axis: P(CHAINS) if axis == 0 and chained else P(), axes, is_leaf=lambda axis: axis is None)


def specs_along_chains(function: Callable[[State], PyTree], state: State, axes: State) -> PyTree:
    """Where the chains are in what `function` makes of a state: along the axis that grows with their number, if any does."""
    once = jax.eval_shape(function, state)
    if not state.chained:
        return tree_map(lambda _: P(), once)

    def doubled(axis: int | None, part: PyTree) -> PyTree:
        return tree_map(lambda x: jax.ShapeDtypeStruct((2 * x.shape[0], *x.shape[1:]), x.dtype), part) if axis == 0 else part

    twice = jax.eval_shape(function, tree_map(doubled, axes, state, is_leaf=lambda axis: axis is None))
    return tree_map(lambda a, b: P(*(None if m == n else CHAINS for m, n in zip(a.shape, b.shape, strict=True))), once, twice)


def _parts(x: jax.Array) -> list[jax.Array]:
    """What this process has of an array."""
    return [shard.data for shard in x.addressable_shards]


def _chains_of(tree: PyTree, place: int, places: int) -> PyTree:
    """The part of the chains, on the second axis, that a device has."""
    if places == 1:
        return tree
    return tree_map(lambda x: x[:, place * x.shape[1] // places : (place + 1) * x.shape[1] // places], tree)
