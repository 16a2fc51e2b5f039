"""Parameters that do not move: held at values of their own while the others are sampled given these."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax

from sgmcmc.core.sameness import sameness
from sgmcmc.core.trees import PyTree, leaf_names
from sgmcmc.problem.posterior import Posterior, Transform


@dataclass(frozen=True)
class Parting:
    """A tree in two dicts by leaf name: what moves, and what is held."""

    structure: Any
    names: tuple[str, ...]
    held: frozenset[str]

    @classmethod
    def of(cls, tree: PyTree, held: Iterable[str]) -> "Parting":
        """That of a tree, from the names of the leaves that are held."""
        return cls(jax.tree.structure(tree), tuple(leaf_names(tree)), frozenset(held))

    def moving(self, tree: PyTree) -> dict[str, Any]:
        return {name: leaf for name, leaf in self._named(tree) if name not in self.held}

    def at_rest(self, tree: PyTree) -> dict[str, Any]:
        return {name: leaf for name, leaf in self._named(tree) if name in self.held}

    def joined(self, moving: Mapping[str, Any], at_rest: Mapping[str, Any]) -> PyTree:
        """The tree again."""
        return jax.tree.unflatten(self.structure, [(at_rest if name in self.held else moving)[name] for name in self.names])

    def _named(self, tree: PyTree) -> Iterable[tuple[str, Any]]:
        return zip(self.names, jax.tree.leaves(tree), strict=True)


@dataclass(frozen=True)
class Holding:
    """The transform of what moves, behind it that of all parameters; `held` are the values of the others."""

    outer: Transform
    parting: Parting
    held: dict[str, Any]

    @cached_property
    def bijections(self) -> tuple[Any, ...]:
        """Of what moves."""
        by_name = dict(zip(self.parting.names, self.outer.bijections, strict=True))
        return tuple(by_name[name] for name in sorted(by_name) if name not in self.parting.held)

    def to_params(self, position: PyTree) -> PyTree:
        return self.outer.to_params(self.parting.joined(position, self.held))

    def to_position(self, params: PyTree) -> PyTree:
        return self.parting.moving(self.outer.to_position(params))

    def log_det(self, position: PyTree) -> Any:
        return self.outer.log_det(self.parting.joined(position, self.held))


def part_from(posterior: Posterior, position: PyTree, held: Iterable[str]) -> tuple[Posterior, PyTree]:
    """The posterior of what moves, and where that is; the leaves of these names are held where they are."""
    parting = Parting.of(position, held)
    values = parting.at_rest(position)
    transform: Any = Holding(posterior.transform, parting, values)
    same = posterior.same, parting.names, parting.held, sameness(values)
    return replace(posterior, transform=transform, same=same), parting.moving(position)


def holding(posterior: Posterior, held: dict[str, Any]) -> Posterior:
    """The posterior with other values held."""
    transform: Any = posterior.transform
    return replace(posterior, transform=replace(transform, held=held), same=(posterior.same, object()))


def holding_those_of(posterior: Posterior, params: PyTree) -> Posterior:
    """The posterior with what it holds, if anything, as these parameters have it."""
    transform: Any = posterior.transform
    return holding(posterior, transform.parting.at_rest(params)) if isinstance(transform, Holding) else posterior


def of_all_parameters(posterior: Posterior) -> Posterior:
    """The posterior as a function of all parameters, those held too; its gradient need not exist."""
    transform: Any = posterior.transform
    if not isinstance(transform, Holding):
        return posterior
    same: Any = posterior.same
    return replace(posterior, transform=transform.outer, same=same[0])
