"""One file of JSON and plain arrays, written whole or not at all, with a checksum: an npz without pickle, for any NumPy."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.core.files import DamagedFileError, replacing

SPEC = "spec"
SEAL = b"blake2b:"
"""What the file ends with, before the checksum of everything else. Readers of zip files look past it."""


def write_arrays(path: Path, spec: dict[str, Any], arrays: Sequence[np.ndarray], previous: Path | None = None) -> None:
    """Write JSON and arrays into one npz file, atomically and durably."""
    named: dict[str, Any] = {f"a{number}": array for number, array in enumerate(arrays)}
    named[SPEC] = np.frombuffer(json.dumps(spec).encode(), np.uint8)
    with replacing(path, previous) as file:
        np.savez(file, **named)
        file.seek(0)
        written: Any = file
        file.write(SEAL + hashlib.file_digest(written, _hash).hexdigest().encode())


def read_arrays(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read what `write_arrays` wrote."""
    contents = memoryview(contents_of(path))
    size = len(contents) - len(SEAL) - 32
    if size < 0 or contents[size : size + len(SEAL)] != SEAL or _hash(contents[:size]).hexdigest().encode() != contents[-32:]:
        raise DamagedFileError(f"{path} is damaged: its checksum does not fit")
    with np.load(io.BytesIO(contents), allow_pickle=False) as file:
        return json.loads(file[SPEC].tobytes()), [file[f"a{number}"] for number in range(len(file.files) - 1)]


def contents_of(path: Path) -> bytes:
    """All of a file; one that is there and cannot be read is damaged."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _hash(data: Any = b"") -> Any:
    return hashlib.blake2b(data, digest_size=16)
