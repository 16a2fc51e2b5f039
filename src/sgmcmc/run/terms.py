"""Which term of a function is not finite: its equations evaluated one by one, and the one at fault put into words."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from sgmcmc.core.errors import PACKAGE, shortened
from sgmcmc.core.trees import PyTree, leaf_names

LIBRARIES = (PACKAGE, os.path.dirname(jax.__file__), os.sep + "site-packages" + os.sep)
"""Files that are not the user's."""

INLINED = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
CUSTOM = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
"""Calls whose bodies are looked into; those of the second kind bring a derivative of their own."""

EDGES = {"log", "log1p", "sqrt", "rsqrt", "div", "pow", "rem", "lgamma", "digamma", "acos", "asin", "acosh", "atanh", "erf_inv"}
"""Operations that are not defined everywhere; others can only overflow."""

ROUNDING = {"exp", "exp2", "expm1", "logistic", "tanh", "erf", "erfc"}
"""Operations after which a logarithm or a quotient is left without digits."""

WORDS = {
    "integer_pow": "{0} to the power {y} overflows",
    "square": "the square of {0} overflows",
    "pow": "{0} to the power {1}",
    "mul": "{0} times {1} overflows",
    "dot_general": "a matrix product overflows",
    "add": "{0} + {1} overflows",
    "add_any": "{0} + {1} overflows",
    "sub": "{0} - {1} overflows",
    "reduce_sum": "a sum overflows",
    "exp": "exp of {0} overflows",
    "exp2": "exp2 of {0} overflows",
    "expm1": "expm1 of {0} overflows",
    "lgamma": "the log gamma function of {0}",
    "cholesky": "the Cholesky factor of a matrix that is not positive definite",
    "scan": "something inside a loop",
    "while": "something inside a loop",
    "cond": "something inside a branch",
}


class Given(NamedTuple):
    """A leaf of what the function was given: a parameter, or a column of the row."""

    kind: str
    name: str


class Known(NamedTuple):
    """A value, and who made it: a step, the caller, or nobody where it is written into the function."""

    value: Any
    maker: Step | Given | None

    @property
    def finite(self) -> bool:
        return not _is_float(self.value) or bool(jnp.isfinite(self.value).all())


@dataclass(frozen=True, eq=False)
class Step:
    """One equation, evaluated. `covered`, if the function around it has a derivative of its own."""

    equation: Any
    inputs: tuple[Known, ...]
    outputs: tuple[Any, ...]
    line: str | None
    covered: bool

    @property
    def name(self) -> str:
        return self.equation.primitive.name

    @property
    def finite(self) -> bool:
        return all(Known(value, self).finite for value in self.outputs)

    @property
    def from_finite(self) -> bool:
        return all(known.finite for known in self.inputs)

    @cached_property
    def slopes(self) -> PyTree:
        """How its outputs change with its inputs."""
        values = [known.value for known in self.inputs]
        moving = [number for number, value in enumerate(values) if _is_float(value)]

        def moved(*floats: Any) -> list[Any]:
            replaced = dict(zip(moving, floats, strict=True))
            return _bind(self.equation, [replaced.get(number, value) for number, value in enumerate(values)])

        floats = [jnp.asarray(values[number]) for number in moving]
        tangents = jax.jvp(moved, floats, [jnp.ones_like(x) for x in floats])[1] if floats else []
        return [slope for slope in tangents if _is_float(slope)]

    @property
    def steep(self) -> bool:
        """Whether its slope is not finite, though all that went in and came out is."""
        return not all(Known(slope, None).finite for slope in self.slopes)

    def ancestors(self, short_of: set[str]) -> Iterator[Step | Given]:
        """All that it was made from, itself included; what went into some operations is left out."""
        seen: set[Any] = set()
        waiting: list[Any] = [self]
        while waiting:
            one = waiting.pop()
            if one is None or one in seen:
                continue
            seen.add(one)
            yield one
            waiting += [known.maker for known in one.inputs] if isinstance(one, Step) and one.name not in short_of else []


@dataclass(frozen=True)
class Term:
    """The term at fault, in words.

    Attributes:
        words: what it computes: `log of 0.0`.
        line: where it is written, where that is known.
        kind: `edge` (outside of where it is defined), `overflow`, `limit` (written so), or, of a gradient, `slope` (infinite
            at a finite value) and `hidden` (a value that is not finite and that the function leaves out).
        operations: what it was made with, itself included.
        parameters: what it was made from.
        columns: likewise.
        direct: those of the columns that reach it without an exponential or its like in between.
    """

    words: str
    line: str | None
    kind: str
    operations: frozenset[str]
    parameters: tuple[str, ...]
    columns: tuple[str, ...]
    direct: tuple[str, ...]

    def __str__(self) -> str:
        return self.words if self.line is None else f"{self.words} ({self.line})"


def term_at_fault(function: Callable[..., Any], given: Mapping[str, PyTree]) -> Term | None:
    """The term that makes the function's value not finite, if one can be found; `given` are its arguments by kind."""
    outputs, _ = _evaluate(function, given)
    bad = next((known for known in outputs if not known.finite), None)
    return None if bad is None else _origin(bad)


def slope_at_fault(function: Callable[..., Any], given: Mapping[str, PyTree]) -> Term | None:
    """The term that makes the function's gradient not finite where its value is, if one can be found: one whose own slope is
    not finite, or one whose value is not and is left out; else a term of the gradient itself.
    """
    _, steps = _evaluate(function, given)
    for step in steps:
        if step.covered or not step.from_finite:
            continue
        if not step.finite:
            return _term(step, _said(step), "hidden")
        if step.steep:
            return _term(step, f"the slope of {_said(step)} is not finite", "slope")
    found = term_at_fault(jax.grad(lambda *arguments: jnp.sum(function(*arguments))), given)
    return None if found is None else replace(found, words=f"in its gradient, {found.words}")


def _origin(known: Known) -> Term | None:
    """The step that made a number that is not finite from numbers that are."""
    step, choice = known.maker, None
    while isinstance(step, Step):
        bad, choice = _chosen(step), step if step.name == "select_n" else choice
        if bad is None:
            return _term(step, _said(step), "edge" if step.name in EDGES else "overflow")
        if bad.maker is None:
            return _term(choice or step, f"{_number(bad.value)} is written there", "limit")
        step = bad.maker
    return None


def _chosen(step: Step) -> Known | None:
    """The input by which the outputs are not finite, if it is one's fault: of a choice, the one that was chosen."""
    inputs = step.inputs
    if step.name == "select_n":
        which = np.broadcast_to(np.asarray(inputs[0].value), np.shape(step.outputs[0]))
        inputs = (inputs[1 + int(which.flat[_first_bad(step.outputs[0])])],)
    return next((known for known in inputs if not known.finite), None)


def _term(step: Step, words: str, kind: str) -> Term:
    made_from, direct = list(step.ancestors(set())), step.ancestors(ROUNDING)
    operations = frozenset(one.name for one in made_from if isinstance(one, Step))
    return Term(
        words, step.line, kind, operations, _named(made_from, PARAMETER), _named(made_from, COLUMN), _named(direct, COLUMN)
    )


def _named(makers: Iterable[Step | Given], kind: str) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in makers if isinstance(one, Given) and one.kind == kind))


PARAMETER, COLUMN = "parameter", "column"


def _said(step: Step) -> str:
    """What a step computes, with the numbers it was given."""
    place = _first_bad(step.slopes[0] if step.finite and step.slopes else step.outputs[0])
    numbers = [_number(_at(known.value, place, np.shape(step.outputs[0]))) for known in step.inputs]
    if step.name == "div":
        return f"division by {numbers[1]}" if float(numbers[1]) == 0 else f"{numbers[0]} / {numbers[1]} overflows"
    if step.name in WORDS:
        return WORDS[step.name].format(*numbers, y=step.equation.params.get("y"))
    return f"{step.name} of {numbers[0]}" if numbers else step.name


def _first_bad(value: Any) -> int:
    """The place of the first number that is not finite, counted through the array."""
    return int(np.argmax(~np.isfinite(np.ravel(np.asarray(value)))))


def _at(value: Any, place: int, shape: tuple[int, ...]) -> Any:
    """The number at that place, where the array has one for it."""
    array = np.ravel(np.asarray(value))
    return array[place] if np.shape(value) == shape else array[0] if array.size else np.nan


def _number(value: Any) -> str:
    return str(float(f"{float(np.ravel(np.asarray(value))[0]):.6g}"))


def _evaluate(function: Callable[..., Any], given: Mapping[str, PyTree]) -> tuple[list[Known], list[Step]]:
    """What a function returns, and every step towards it, in order."""
    traced, steps = jax.make_jaxpr(function)(*given.values()), []
    makers = [Given(kind, name) for kind, tree in given.items() for name in leaf_names(tree)]
    inputs = [Known(leaf, maker) for leaf, maker in zip(jax.tree.leaves(tuple(given.values())), makers, strict=True)]
    return _walk(traced.jaxpr, traced.consts, inputs, None, False, steps), steps


def _walk(jaxpr: Any, consts: Any, inputs: list[Known], line: str | None, covered: bool, steps: list[Step]) -> list[Known]:
    """The outputs of some equations; every equation is added to the steps."""
    known = {variable: Known(value, None) for variable, value in zip(jaxpr.constvars, consts, strict=True)}
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Known:
        return Known(atom.val, None) if isinstance(atom, jax_core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        taken, here = [read(atom) for atom in equation.invars], line or user_line(equation)
        body, custom = _body(equation), equation.primitive.name in CUSTOM
        if body is not None:
            made = _walk(getattr(body, "jaxpr", body), getattr(body, "consts", ()), taken, here, covered or custom, steps)
        else:
            values = _bind(equation, [one.value for one in taken])
            steps.append(step := Step(equation, tuple(taken), tuple(values), here, covered))
            made = [Known(value, step) for value in values]
        known |= dict(zip(equation.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _body(equation: Any) -> Any:
    """The equations of a call, where they are looked into."""
    if equation.primitive.name not in INLINED | CUSTOM:
        return None
    return next((equation.params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in equation.params), None)


def _bind(equation: Any, values: list[Any]) -> list[Any]:
    """An equation on values; calls have been looked into, so that its parameters are all there is to it."""
    made = equation.primitive.bind(*values, **equation.params)
    return list(made) if equation.primitive.multiple_results else [made]


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)


def user_line(equation: Any) -> str | None:
    """Where an equation was written, if that was in a file of the user's."""
    try:
        for frame in equation.source_info.traceback.frames:
            if frame.file_name.startswith(PACKAGE):  # below it is whoever called the library
                return None
            if not any(part in frame.file_name for part in LIBRARIES):
                return _line(frame.file_name, frame.line_num)
    except Exception:  # a trace without frames, or frames of another version: the sentence goes without
        return None
    return None


def _line(file: str, number: int) -> str:
    text = linecache.getline(file, number).strip()
    return f"line {number} of {os.path.basename(file)}" + (f": {shortened(text, 90)}" if text else "")
