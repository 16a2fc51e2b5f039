"""What people hand over as a dataset, made columns by name: frames and tables of other libraries, pairs, records, categories.

Other libraries are known by what their objects can do, so that none of them is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError, describe, shortened

NOTHING = 2**30
"""In place of a code where there is no value."""

Levels = dict[str, tuple[Any, ...]]
"""What the codes of columns of categories stand for, by column."""


def columns_of(dataset: Any) -> Mapping[str, Any]:
    """The columns of anything that has some, or what is wrong."""
    if hasattr(dataset, "collect_schema") and hasattr(dataset, "collect"):
        raise InputError("dataset is a lazy frame, of which no rows are there yet; give dataset.collect()")
    if getattr(getattr(dataset, "dtype", None), "names", None):
        return {name: dataset[name] for name in dataset.dtype.names}
    if isinstance(dataset, Mapping):
        return dataset
    if hasattr(dataset, "column_names") and hasattr(dataset, "column"):  # an Arrow table
        return {name: dataset.column(name) for name in dataset.column_names}
    if hasattr(dataset, "get_columns"):  # a frame of polars
        return {column.name: column for column in dataset.get_columns()}
    if hasattr(dataset, "items") and hasattr(dataset, "columns"):  # a frame of pandas
        return {str(name): column for name, column in dataset.items()}
    if isinstance(dataset, tuple | list) and len(dataset) == 2 and all(hasattr(one, "shape") for one in dataset):
        return dict(zip(("X", "y"), dataset, strict=True))
    expected = "a dict of arrays with rows on the first axis, such as {'x': x}, or a folder made by sgmcmc.data.convert"
    raise InputError(f"dataset is {describe(dataset)}; expected {expected}")


def coded(columns: Mapping[str, Any], known: Levels | None = None) -> tuple[dict[str, Any], Levels]:
    """The columns as arrays, categories as codes, with what these stand for; as before, where that is known."""
    values, levels = {}, Levels()
    for name, column in columns.items():
        values[str(name)] = _plain(str(name), column)
        if (found := _categories(column)) is not None:
            values[str(name)], levels[str(name)] = _codes(str(name), *found, (known or {}).get(str(name)))
    return values, levels


def levels_of(dataset: Any) -> Levels:
    """What the codes of a dataset's columns of categories stand for."""
    try:
        columns = columns_of(dataset)
    except InputError:  # a folder, say
        return {}
    found = {str(name): _categories(column) for name, column in columns.items()}
    return {name: tuple(one[1]) for name, one in found.items() if one is not None}


def _plain(name: str, column: Any) -> Any:
    """A column as NumPy can read it."""
    if isinstance(column, Mapping):
        inside = ", ".join(f"'{inner}': ..." for inner in list(column)[:3])
        raise InputError(f"dataset[{name!r}] is a dict; expected an array: put what is in it beside the others, {{{inside}}}")
    if hasattr(column, "tocsr"):
        dense = np.prod(column.shape, dtype=float) * column.dtype.itemsize / 1e9
        repair = f"give {name}.toarray(), of {dense:.3g} GB, or two columns with the places and values of each row's numbers"
        raise InputError(f"dataset[{name!r}] is a sparse matrix; {repair} that are not 0, padded with zeros")
    if hasattr(column, "detach"):  # a tensor of PyTorch, on whatever device, with a gradient or not
        column = column.detach()
        return np.asarray(column.cpu() if hasattr(column, "cpu") else column)
    return column


def _categories(column: Any) -> tuple[Any, list[Any]] | None:
    """Codes and levels of a column of categories, however it is kept; None of any other."""
    kind = str(getattr(column, "dtype", getattr(column, "type", "")))
    if kind == "category":  # pandas
        held = getattr(column, "cat", column)
        return np.asarray(held.codes), list(held.categories)
    if kind.startswith(("Categorical", "Enum")) and hasattr(column, "to_physical"):  # polars
        return _of_polars(column)
    if kind.startswith("dictionary<"):  # Arrow
        whole = column.unify_dictionaries().combine_chunks() if hasattr(column, "unify_dictionaries") else column
        whole = whole.chunk(0) if hasattr(whole, "chunk") else whole
        return np.asarray(whole.indices.fill_null(-1)), whole.dictionary.to_pylist()
    return None


def _of_polars(column: Any) -> tuple[np.ndarray, list[Any]]:
    """Codes count the categories of this column, which a pool of categories may not."""
    codes = np.asarray(column.to_physical().fill_null(NOTHING)).astype(np.int64)
    _, first, number = np.unique(codes, return_index=True, return_inverse=True)
    found = [column[int(place)] for place in first]
    kept = (
        getattr(column.dtype, "categories", ())
        if str(column.dtype).startswith("Enum")
        else sorted(one for one in found if one is not None)
    )
    levels = list(kept)
    return np.array([-1 if one is None else levels.index(one) for one in found])[number], levels


def _codes(name: str, codes: np.ndarray, levels: list[Any], known: tuple[Any, ...] | None) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Codes in the order that is known, if one is."""
    if (codes < 0).any():
        missing = int(np.argmax(codes < 0))
        raise InputError(f"dataset[{name!r}] has no value in row {missing}; drop such rows, or make missing a level of its own")
    if known is None or known == tuple(levels):
        return codes.astype(np.int32), tuple(levels)
    used = np.unique(codes)
    strange = [levels[i] for i in used if levels[i] not in known]
    if strange:
        there = shortened(", ".join(map(str, known)))
        raise InputError(f"dataset[{name!r}] has the level {strange[0]!r}, which the rows of the fit had not: they had {there}")
    order = np.zeros(len(levels), np.int32)
    order[used] = [known.index(levels[i]) for i in used]
    return order[codes], known
