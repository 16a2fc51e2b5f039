"""What disks do to files."""

from __future__ import annotations

import resource
from contextlib import contextmanager


@contextmanager
def largest_file(size):
    """A real limit of the system: writing stops in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def flip(path, position, bit=0):
    contents = bytearray(path.read_bytes())
    contents[position] ^= 1 << bit
    path.write_bytes(contents)
