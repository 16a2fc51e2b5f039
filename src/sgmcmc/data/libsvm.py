"""LIBSVM text, `label index:value index:value ...`, parsed a block of lines at a time without a loop over lines."""

import math
import re
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from itertools import chain
from typing import IO

import numpy as np

from sgmcmc.core.errors import InputError, shortened

TEXT_BLOCK = 2**22
"""Bytes of text parsed at once."""

_SEPARATORS = bytes.maketrans(b": \t\r", b"\n\n\n\n")
_COMMENT = re.compile(rb"#[^\n]*")
_DIGITS_AT_END = re.compile(rb"\d+$")
_BLANK = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)


def read_rows(stream: IO[bytes], n_features: int, block_bytes: int, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Dense features and labels, in blocks of at most about `block_bytes`."""
    largest, seen = max(1, block_bytes // (8 * n_features)), 0
    for text in line_blocks(stream):
        labels, counts, index, values = parse(text, name, seen + 1)
        if len(index) and index.max() > n_features:
            where = f"rows {seen + 1} to {seen + len(labels)}"
            raise InputError(f"{name} has a feature {index.max()} in {where}; n_features is {n_features}")
        rows = np.repeat(np.arange(len(labels)), counts)
        ends = np.cumsum(counts)
        for start in range(0, len(labels), largest):
            stop = min(start + largest, len(labels))
            entries = slice(ends[start] - counts[start], ends[stop - 1])
            dense = np.zeros((stop - start, n_features))
            dense[rows[entries] - start, index[entries] - 1] = values[entries]
            yield dense, labels[start:stop]
        seen += len(labels)


def count_features(stream: IO[bytes]) -> int:
    """The largest feature number. Features ascend in a line, so its last one is enough."""
    largest = 0
    for text in line_blocks(stream):
        for line in text.splitlines():
            last = _DIGITS_AT_END.findall(line.rpartition(b":")[0][-10:])
            largest = max(largest, *map(int, last), 0)
    return largest


def line_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, without comments and blank lines."""
    rest = b""
    for block in chain(iter(partial(stream.read, TEXT_BLOCK), b""), [b"\n"]):
        so_far = rest + block
        end = so_far.rfind(b"\n") + 1
        text, rest = so_far[:end], so_far[end:]
        if text := _BLANK.sub(b"", _COMMENT.sub(b"", text) if b"#" in text else text):
            yield text


def parse(text: bytes, name: str, first_row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels; and of each row the number of its features, their numbers from 1, and their values."""
    import pandas

    characters = np.frombuffer(text, np.uint8)
    ends, colons = np.flatnonzero(characters == ord("\n")), np.flatnonzero(characters == ord(":"))
    counts = np.diff(np.searchsorted(colons, ends), prepend=0)
    column = BytesIO(text.translate(_SEPARATORS))
    try:
        frame = pandas.read_csv(column, header=None, sep="\x01", dtype=np.float64, engine="c", quoting=3, na_filter=False)
    except ValueError:
        raise _bad_line(text, name, first_row) from None
    numbers = frame.to_numpy().ravel()
    if len(numbers) != len(ends) + 2 * len(colons):
        raise _bad_line(text, name, first_row)
    starts = np.cumsum(2 * counts + 1) - 2 * counts - 1
    index, values = np.delete(numbers, starts).reshape(-1, 2).T
    whole = index.astype(np.int64)
    ascending = np.diff(whole, prepend=0) > 0
    ascending[(np.cumsum(counts) - counts)[counts > 0]] = True
    if not (ascending & (whole >= 1) & (whole == index)).all():
        raise _bad_line(text, name, first_row)
    return numbers[starts], counts, whole, values


def _bad_line(text: bytes, name: str, first_row: int) -> InputError:
    for number, line in enumerate(text.splitlines()):
        if not _is_good(line):
            shown, expected = shortened(line.decode(errors="replace")), "a label, then index:value, indices ascending from 1"
            return InputError(f"{name}, row {first_row + number} is {shown!r}; expected {expected}")
    return InputError(f"{name}, from row {first_row}: not LIBSVM text; expected lines of a label, then index:value")


def _is_good(line: bytes) -> bool:
    try:
        label, *features = line.split()
        float(label)
        pairs = [feature.split(b":") for feature in features]
        numbers = [int(index) for index, value in pairs if math.isfinite(float(value))]
    except ValueError:
        return False
    return len(numbers) == len(pairs) and all(low < high for low, high in zip([0, *numbers], numbers, strict=False))
