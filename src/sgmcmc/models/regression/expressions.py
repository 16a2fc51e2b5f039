"""What an expression of a formula may be: columns, numbers, arithmetic and calls by name, and no other Python.

A formula may come out of a file that someone else has written. So nothing in it reaches further than the columns and the
functions that formulas have: no attributes but ufuncs of NumPy and codings of levels, no subscripts, no functions of one's own.
"""

from __future__ import annotations

import ast

import numpy as np

from sgmcmc.core.errors import InputError, shortened

PLAIN = (
    ast.Expression, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Name, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.List, ast.Tuple, ast.Dict, ast.keyword,
)  # fmt: skip
"""Nodes that may be anywhere."""

OF_NUMPY = ("where", "clip", "pi", "e", "inf", "nan")
"""What of NumPy may be used beside its ufuncs."""

NUMPY, CODINGS = "np", "contr"


def check_expression(tree: ast.Expression, text: str, what: str) -> None:
    """Refuse what is no expression of columns."""
    for node in ast.walk(tree):
        if (wrong := _wrong(node)) is not None:
            told = f"{what} {shortened(text, 80)!r} has {wrong}"
            raise InputError(f"{told}; expected columns, numbers and functions: make it a column of the frame before")


def _wrong(node: ast.AST) -> str | None:
    """What is wrong with a node by itself."""
    if isinstance(node, ast.keyword) and (node.arg is None or node.arg.startswith("_")):
        return f"the argument {node.arg or '**'}"
    if isinstance(node, ast.Name):
        return f"the name {node.id}" if node.id.startswith("__") else None
    if isinstance(node, ast.BinOp):
        return _wrong_operation(node)
    if isinstance(node, ast.Constant):
        return None if isinstance(node.value, bool | int | float | str | None) else f"{node.value!r}"
    if isinstance(node, ast.Call):
        return None if isinstance(node.func, ast.Name | ast.Attribute) else "a call of what has no name"
    if isinstance(node, ast.Attribute):
        return None if _known(node) else f".{node.attr}"
    return None if isinstance(node, PLAIN) else f"{type(node).__name__.lower()} of Python"


def _wrong_operation(node: ast.BinOp) -> str | None:
    """Text and lists that are multiplied, and powers of numbers that no one wants to wait for."""
    values = [value for side in (node.left, node.right) for value in _values(side)]
    if any(isinstance(value, ast.Constant) and isinstance(value.value, str) for value in values):
        return "arithmetic with text"
    if any(isinstance(value, ast.List | ast.Tuple | ast.Dict) for value in values):
        return "arithmetic with lists"
    alone = isinstance(node.op, ast.Pow | ast.LShift) and not any(isinstance(inside, ast.Name) for inside in ast.walk(node))
    return "a power of numbers alone" if alone else None


def _values(node: ast.AST) -> list[ast.AST]:
    """What a side of an operation may be: `a or b` is either."""
    return [value for one in node.values for value in _values(one)] if isinstance(node, ast.BoolOp) else [node]


def _known(node: ast.Attribute) -> bool:
    """Whether an attribute is a ufunc of NumPy, or a coding of levels."""
    if not isinstance(node.value, ast.Name) or node.attr.startswith("_"):
        return False
    if node.value.id == CODINGS:
        return True
    return node.value.id == NUMPY and (node.attr in OF_NUMPY or isinstance(getattr(np, node.attr, None), np.ufunc))
