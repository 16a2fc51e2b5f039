"""Several processes that run one job: sums and messages between them, and what to do when one of them is gone.

Everything here is called by all processes, in the same order, from their main threads; with one process it does nothing. A dead
peer breaks whatever the others wait for; a stalled one would let them wait for ever. So every process shows a sign of life
through JAX's coordinator, and a watchdog ends a process that waits for a peer which has stopped doing so. A peer that compiles or
reads for an hour is alive, and is waited for.
"""

import atexit
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np

from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError, SgmcmcError
from sgmcmc.core.trees import Dataset, PyTree, join, size
from sgmcmc.rows.table import Stratum, Table, check_dataset

Value = TypeVar("Value")

PEER_TIMEOUT = "SGMCMC_PEER_TIMEOUT"
"""The environment variable with the seconds after which a peer that shows no sign of life is given up: 45 when it is not set."""

PEER_WAIT = "SGMCMC_PEER_WAIT"
"""The one with the seconds to wait at most for a peer that is alive but does not come: 1800 when it is not set."""

BEAT = 2.0
"""Seconds between signs of life."""

GRACE = 15.0
"""Seconds to finish what we share with a peer that has ended in an orderly way."""

NAP = 10.0
"""If a second takes longer than this, the whole process was suspended, and knows nothing of its peers."""

LOST = 75
"""Exit status of a process that lost a peer: try again (EX_TEMPFAIL)."""

ALIVE, LEFT = "sgmcmc/alive", "left"
OF_PEERS = ("gloo", "nccl", "connection", "socket", "unavailable", "deadline_exceeded", "coordination")
"""Words of runtime errors that come from the connection, not from this process's own memory or program."""


def share(dataset: Dataset, *, devices: int = 1) -> Stratum:
    """This process's part of a dataset that all processes name alike, such as files on a common disk.

    Process p of P takes rows pN/P to (p+1)N/P. A dataset of arrays on disk is not read beyond that part.

    Args:
        dataset: a dict of arrays, rows on the first axis, or a folder made by `sgmcmc.data.convert`: the same on all processes.
        devices: parts into which each process's rows are cut, one for each of its devices.

    >>> import numpy as np, sgmcmc
    >>> sgmcmc.hosts.share({"x": np.zeros(100)})["x"].shape  # the only process of its job
    (100,)
    """

    def mine() -> tuple[Table, int | None]:
        table, me, count = check_dataset(dataset), jax.process_index(), jax.process_count()
        start, stop = me * table.n_rows // count, (me + 1) * table.n_rows // count
        checksum = None if table.checksum is None else f"{table.checksum}, rows {start} to {stop}"
        return replace(table.part(start, stop), checksum=checksum), table.n_rows

    return _stratum(mine, devices)


def stratum(rows: Dataset, *, devices: int = 1) -> Stratum:
    """Rows of this process's own: those of all processes together are the dataset. They need not be equally many.

    Args:
        rows: a dict of arrays, rows on the first axis, with the same names and types on all processes.
        devices: parts into which each process's rows are cut, one for each of its devices.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> mine = sgmcmc.hosts.stratum({"x": np.ones(1000)})
    >>> out = sgmcmc.sgldcv(log_lik, mine, {"mu": 0.0}, 1e-4, minibatch_size=100, n_iters=100, seed=1)
    >>> out.settings["n_rows"]
    1000
    """
    return _stratum(lambda: (check_dataset(rows), None), devices)


def _stratum(rows_of: Callable[[], tuple[Table, int | None]], devices: int) -> Stratum:
    """The stratum, once all processes agree on names, types and number of devices."""

    def mine() -> tuple[Table, dict[str, Any]]:
        (table, total), most = rows_of(), len(jax.local_devices())
        if check_count("devices", devices) > most:
            raise InputError(f"devices is {devices}; expected at most {most}, as this process has")
        if table.n_rows < devices:
            raise InputError(f"this process has {table.n_rows} rows for {devices} strata; expected at least one row for each")
        kinds = {name: [str(column.dtype), list(column.shape[1:])] for name, column in table.items()}
        return table, {"rows": table.n_rows, "said the same": {"columns": kinds, "devices": devices, "rows in all": total}}

    table, told = together("the sizes of the strata", mine)
    everybody = [json.loads(message) for message in exchange(json.dumps(told).encode(), "the sizes of the strata")]
    first, *others = (one["said the same"] for one in everybody)
    for number, other in enumerate(others, start=1):
        if other != first:
            raise InputError(f"process {number} has {other}, process 0 {first}; expected the same on all processes")
    counts = tuple(one["rows"] for one in everybody)
    return Stratum(table.columns, table.shuffled, table.checksum, table.checked, counts, jax.process_index(), devices)


@dataclass
class Peers:
    """The other processes of the job, and when each of them last showed a sign of life."""

    client: Any
    me: int
    count: int
    seen: dict[int, float] = field(default_factory=dict)
    waiting: tuple[str, float] | None = None
    lost: bool = False

    def __post_init__(self) -> None:
        self._over = threading.Event()
        atexit.register(self._leave)
        for run in (self._beat, self._watch):
            threading.Thread(target=run, daemon=True, name="sgmcmc peers").start()

    @property
    def others(self) -> str:
        """The other processes, in words."""
        numbers = [str(number) for number in range(self.count) if number != self.me]
        return f"process {numbers[0]}" if len(numbers) == 1 else f"one of processes {', '.join(numbers)}"

    def _beat(self) -> None:
        """Show a sign of life, and look for those of the others. If the coordinator does not answer, they all fall silent."""
        signs: dict[int, str] = {}
        with suppress(jax.errors.JaxRuntimeError):
            for beat in itertools.count():
                self._show(str(beat))
                for key, sign in self.client.key_value_dir_get(ALIVE):
                    number = int(key.rpartition("/")[2])
                    if signs.get(number) != sign:
                        signs[number] = sign
                        self.seen[number] = time.monotonic() - (_seconds(PEER_TIMEOUT) - GRACE if sign == LEFT else 0)
                if self._over.wait(BEAT):
                    return

    def _show(self, sign: str) -> None:
        self.client.key_value_set(f"{ALIVE}/{self.me}", sign, allow_overwrite=True)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(1.0):
            now = time.monotonic()
            if now - before > NAP:  # suspended ourselves, as a batch system does with a whole job: start counting again
                self.seen = dict.fromkeys(self.seen, now)
                self.waiting = None if self.waiting is None else (self.waiting[0], now)
            before, waiting = now, self.waiting
            if waiting is not None:
                self._give_up_if_silent(*waiting, now)

    def _give_up_if_silent(self, what: str, since: float, now: float) -> None:
        silent = [number for number, last in list(self.seen.items()) if number != self.me and now - last > _seconds(PEER_TIMEOUT)]
        if silent:
            why = f"process {silent[0]} has shown no sign of life for {now - self.seen[silent[0]]:.0f} s"
        elif now - since > _seconds(PEER_WAIT):
            why = f"{self.others} has not come for {now - since:.0f} s"
        else:
            return
        print(f"sgmcmc: process {self.me} ends: {gone(why, what)}", file=sys.stderr)
        leave_at_once()

    def _leave(self) -> None:
        """At exit: say goodbye. After a loss JAX would wait for the peer at a barrier, for minutes: leave without it."""
        self._over.set()
        if self.lost:
            leave_at_once()
        with suppress(jax.errors.JaxRuntimeError):
            self._show(LEFT)


def leave_at_once() -> NoReturn:
    """End this process, with what it has printed, and without waiting for anybody."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LOST)


def gone(why: str, what: str) -> str:
    """What a user reads when a peer is lost."""
    return f"{why} (needed for {what}); restart the job with the same call: with a checkpoint it goes on from there"


def _seconds(variable: str) -> float:
    return float(os.environ.get(variable, {PEER_TIMEOUT: "45", PEER_WAIT: "1800"}[variable]))


@cache
def peers() -> Peers | None:
    """The others, watched from the first call on; None in a job of one process."""
    if jax.process_count() == 1:
        return None
    from jax._src import distributed  # the coordinator's key-value store has no public name

    return Peers(distributed.global_state.client, jax.process_index(), jax.process_count())


@contextmanager
def waiting_for_peers(what: str) -> Iterator[None]:
    """Around everything that needs the other processes: a dead one becomes an error, a stalled one ends this process."""
    job = peers()
    if job is None:
        yield
        return
    before, job.waiting = job.waiting, (what, time.monotonic())
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(word in str(error).lower() for word in OF_PEERS):
            raise
        job.lost = True
        raise SgmcmcError(gone(f"{job.others} is gone or cannot be reached", what)) from error
    finally:
        job.waiting = before


def exchange(message: bytes, what: str) -> list[bytes]:
    """Everybody's message, in the order of the processes."""
    if jax.process_count() == 1:
        return [message]
    with waiting_for_peers(what):
        lengths = _gathered(np.asarray([len(message)], np.uint64)).view(np.uint64).ravel().tolist()
        padded = np.zeros(-(-max(lengths) // 8), np.uint64)
        padded.view(np.uint8)[: len(message)] = np.frombuffer(message, np.uint8)
        everybody = _gathered(padded) if len(padded) else np.zeros((len(lengths), 0), np.uint32)
    return [row.tobytes()[:length] for row, length in zip(everybody, lengths, strict=True)]


def _gathered(numbers: np.ndarray) -> np.ndarray:
    """64-bit numbers of all processes, as pairs of 32-bit ones: JAX would round them to 32 bits."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(numbers.view(np.uint32)))


def from_first(message: bytes, what: str = "process 0's word") -> bytes:
    """Process 0's message, on all processes; what the others pass is not looked at."""
    if jax.process_count() == 1:
        return message
    from jax.experimental import multihost_utils

    length = int.from_bytes(exchange(len(message).to_bytes(8, "little"), what)[0], "little")
    numbers = np.zeros(-(-length // 4), np.uint32)
    if jax.process_index() == 0:
        numbers.view(np.uint8)[:length] = np.frombuffer(message, np.uint8)
    with waiting_for_peers(what):
        return np.asarray(multihost_utils.broadcast_one_to_all(numbers)).tobytes()[:length] if length else b""


def sum_over_processes(tree: PyTree, what: str = "the sum of a full pass") -> PyTree:
    """The sum of float64 arrays over the processes: added up in the same order on each, so that all agree to the last bit."""
    if jax.process_count() == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    total = sum((np.frombuffer(message, np.float64) for message in exchange(join(tree).tobytes(), what)), np.zeros(size(tree)))
    ends = np.cumsum([np.size(leaf) for leaf in leaves])
    parts = [part.reshape(np.shape(leaf)) for part, leaf in zip(np.split(total, ends[:-1]), leaves, strict=True)]
    return jax.tree.unflatten(structure, parts)


def together(what: str, function: Callable[[], Value]) -> Value:
    """`function()` on every process; what fails on one of them fails on all, instead of leaving the others waiting."""
    value, refusal = None, None
    try:
        value = function()
    except SgmcmcError as error:
        refusal = error
    told = [message.decode() for message in exchange(str(refusal or "").encode(), what)]
    if refusal is not None:
        raise refusal
    for number, text in enumerate(told):
        if text:
            raise InputError(f"process {number} refused its part: {text}")
    return value  # pyright: ignore[reportReturnType]: without a refusal there is a value
