"""Everything that can go wrong with a run on disk, done to it through the public calls.

Each fault ends in the error or the recovery that the table states, no committed draw is lost by it, and once its cause is
mended the same call finishes the run with the draws of one that was never disturbed, bit for bit.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import flip, largest_file
from keeping import Last

import sgmcmc
from sgmcmc import InputError, SgmcmcError, SgmcmcWarning
from sgmcmc.rows.files import FileColumn

REFUSED = "InputError that says what differs; nothing is touched"
GOES_BACK = "a warning; the checkpoint before serves"
TELLS = "an error that says which file is damaged; what is intact stays as it is"
SAVED = "the run ends, and all it made is in the folder"

FAULTS = {
    # name: (what is done, what must happen)
    "disk full: draws": ("the file of draws cannot grow", "SgmcmcError: free some space; the draws made are in its .result"),
    "disk full: state": ("state.npz cannot be written", "SgmcmcError: free some space; the checkpoint before is still there"),
    "disk full: set-up": ("the result of the set-up cannot be written", "SgmcmcError: free some space"),
    "disk error": ("syncing the draws fails", "SgmcmcError: see to the disk"),
    "read-only folder": ("nothing can be written into the run folder", "SgmcmcError: make it a folder that can be written to"),
    "read-only parent": ("the run folder cannot be made", "SgmcmcError: make it a folder that can be written to"),
    "folder is a file": ("checkpoint= is a file", "SgmcmcError: make it a folder"),
    "folder of something else": ("checkpoint= holds other files", "InputError; they are left alone"),
    "second process": ("another process holds the run folder", "SgmcmcError: another process is running"),
    "second call": ("the run's own progress function makes the same call", "SgmcmcError: this process already is running"),
    "state truncated": ("state.npz loses its second half", GOES_BACK),
    "state flipped": ("one bit of state.npz changes", GOES_BACK),
    "state deleted": ("state.npz is gone", "the checkpoint before serves"),
    "both states damaged": ("state.npz and state.previous.npz lose bytes", TELLS),
    "draws truncated": ("the file of draws loses its last byte", GOES_BACK),
    "draws truncated further": ("the file of draws loses most of it", TELLS),
    "draws deleted": ("the file of draws is gone", TELLS),
    "manifest damaged": ("one number in manifest.json changes", TELLS),
    "manifest deleted": ("manifest.json is gone", "InputError: other files, and no manifest.json"),
    "set-up damaged": ("one bit of the saved start changes", "a warning; it is computed again"),
    "another log_lik": ("a factor in the likelihood", REFUSED),
    "another captured array": ("an array that the likelihood uses", REFUSED),
    "another log_prior": ("no prior", REFUSED),
    "other data": ("one number of the data", REFUSED),
    "another stepsize": ("twice the step size", REFUSED),
    "another seed": ("seed=2", REFUSED),
    "another thin": ("thin=2", REFUSED),
    "another burn_in": ("burn_in=5", REFUSED),
    "another keep": ("keep= of something else", REFUSED),
    "another n_chains": ("n_chains=3", REFUSED),
    "another sampler": ("sghmc instead of sgld", REFUSED),
    "another version": ("another release of sgmcmc", REFUSED),
    "fewer iterations": ("n_iters below what the folder has", "InputError: ask for more, or load"),
    "rows truncated before": ("a file of rows is cut short before the run", "InputError with both sizes"),
    "rows truncated during, windows": ("a file of rows is cut short during the run", "SgmcmcError: the file ends; .result"),
    "rows truncated during, random": ("the same with rows drawn one by one", "SgmcmcError: another size; .result"),
    "rows header damaged": ("header.json changes before the run", "InputError: the header is damaged"),
    "rows deleted": ("the folder of rows is deleted during the run", "the run finishes: its files are open"),
    "NaN in a memory map": ("a NaN is written before the run", "InputError that names the row"),
    "NaN during the run": ("a NaN is written into a memory map during the run", "DivergenceError with all finite draws"),
    "rows raise": ("the prefetch thread gets an exception from the user's array", "that exception; " + SAVED),
    "chain diverges": ("a step size that grows", "DivergenceError, the same at every attempt; " + SAVED),
    "Ctrl-C in the mode search": ("Ctrl-C during set-up", "KeyboardInterrupt; the folder is free again"),
    "Ctrl-C": ("Ctrl-C while a progress function runs", SAVED),
    "Ctrl-C twice": ("a second Ctrl-C before the first was heard", SAVED),
    "SIGTERM twice": ("the signal that ends a job, and again", SAVED),
    "Ctrl-C in a checkpoint": ("Ctrl-C while state.npz is being replaced", SAVED),
    "progress raises": ("the progress function raises", "its exception; " + SAVED),
    "keep without state": ("a keep object whose store has no state()", "InputError, and the folder is not begun"),
    "refused call": ("a call with arguments that do not go together", "InputError, and the folder is not begun"),
    "results outlive their file": ("a failed run's .result is read after another failed attempt", "it has its draws still"),
    "run inside a run": ("another run in a folder inside the run's", "each has its own draws"),
    "sample made longer": ("sample with target_ess called again", "the same result"),
}  # fmt: skip

N, D, HALF, WHOLE = 500, 3, 300, 600
WEIGHT = jnp.asarray([1.0, 1.0, 1.0])


def arrays():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    return {"X": X, "y": (rng.random(N) < 1 / (1 + np.exp(-X.sum(axis=1)))).astype(np.float32)}


def log_lik(params, batch, factor=1.0, weight=WEIGHT):
    eta = batch["X"] @ (weight * params["beta"])
    return factor * (batch["y"] * eta - jax.nn.softplus(eta)).sum()


def log_prior(params):
    return -0.5 * (params["beta"] ** 2).sum()


def call(checkpoint=None, sampler=sgmcmc.sgld, lik=log_lik, dataset=None, stepsize=1e-3, **options):
    """A small run; `options` replace its arguments."""
    usual = {"log_prior": log_prior, "minibatch_size": 10, "n_chains": 2, "n_iters": WHOLE, "seed": 1, "progress": False}
    dataset = arrays() if dataset is None else dataset
    return sampler(lik, dataset, {"beta": np.zeros(D, np.float32)}, stepsize, **(usual | options), checkpoint=checkpoint)


@cache
def undisturbed(**options):
    """The draws of the same call without a folder."""
    return call(**options)["beta"]


class Case:
    """A run that is half done, and what a fault does to it."""

    def __init__(self, place, monkeypatch, half_done):
        self.place, self.patch, self.half_done = place, monkeypatch, half_done
        self.folder, self.options, self.expected = place / "run", {}, None
        self.finish = partial(call, self.folder)
        self.committed = 0

    def begin(self, **options):
        """Half of the run."""
        self.options, self.committed = options, HALF
        if options:
            call(self.folder, n_iters=HALF, **options)
        else:
            shutil.copytree(self.half_done, self.folder)

    def go_on(self, **options):
        return self.finish(**(self.options | options))

    def held(self):
        return sgmcmc.load(self.folder)["beta"]

    def check(self):
        """No committed draw is lost, and the same call finishes the run."""
        expected = undisturbed(**self.options) if self.expected is None else self.expected
        if self.committed:
            held = self.held()
            assert held.shape[1] >= self.committed
            same(held, expected[:, : held.shape[1]])
        same(self.go_on()["beta"], expected)
        same(self.held(), expected)

    def check_all_saved(self, result, least=0):
        """What came back is what is in the folder."""
        same(self.held(), result["beta"])
        self.committed = result["beta"].shape[1]
        assert least <= self.committed < WHOLE


def same(found, expected):
    assert found.shape == expected.shape
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


INJECTED = {}


def fault(name):
    def registered(function):
        INJECTED[name] = function
        return function

    return registered


@pytest.fixture(scope="module")
def small_steps():
    """Many chunks, and a checkpoint after each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sgmcmc.checkpoints.places.SAVE_SECONDS", 0.0)
        patched.setattr("sgmcmc.run.loop.LARGEST_CHUNK", 64)
        patched.setattr("sgmcmc.checkpoints.reading.PAUSE", 0.001)
        yield


@pytest.fixture(scope="module")
def half_done(tmp_path_factory, small_steps):
    folder = tmp_path_factory.mktemp("half") / "run"
    same(call(folder, n_iters=HALF)["beta"], undisturbed()[:, :HALF])
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name, tmp_path, monkeypatch, half_done):
    case = Case(tmp_path, monkeypatch, half_done)
    after = INJECTED[name](case)
    if after is not False:
        case.check()


def test_the_table_is_what_is_tested():
    assert list(FAULTS) == list(INJECTED)
    assert len(FAULTS) >= 15


def with_rare_checkpoints(inject):
    """Only the end of the run makes it save."""

    def rarely(case):
        case.patch.setattr("sgmcmc.checkpoints.places.SAVE_SECONDS", 1000.0)
        return inject(case)

    return rarely


# --- disks


@contextmanager
def failing(case, function, code, ending):
    """A function of the system that fails for files whose names end like this."""
    real = getattr(os, function)

    def fails(file, *others):
        name = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else str(file)
        if name.endswith(ending):
            raise OSError(code, os.strerror(code))
        return real(file, *others)

    with case.patch.context() as patched:
        patched.setattr(os, function, fails)
        yield


@fault("disk full: draws")
def _(case):
    case.begin()
    size = (case.folder / "kept.draws").stat().st_size
    assert size > 2 * (case.folder / "state.npz").stat().st_size  # so that it is the draws that the limit stops
    with largest_file(size + 1000), pytest.raises(SgmcmcError, match=r"kept.draws could not be written: .*free some") as caught:
        case.go_on()
    case.check_all_saved(caught.value.result, HALF)


@fault("disk full: state")
def _(case):
    case.begin()
    words = r"state.npz could not be written: No space left.*the 300 draws .* are safe in .*free some space"
    with failing(case, "fsync", errno.ENOSPC, "state.npz.tmp"), pytest.raises(SgmcmcError, match=words):
        case.go_on()
    assert case.held().shape[1] == HALF


@fault("disk full: set-up")
def _(case):
    words = r"stage-start.npz could not be written: .*holds no draws yet; free some space"
    with failing(case, "fsync", errno.ENOSPC, "stage-start.npz.tmp"), pytest.raises(SgmcmcError, match=words):
        case.go_on()


@fault("disk error")
def _(case):
    case.begin()
    with (
        failing(case, "fsync", errno.EIO, "kept.draws"),
        pytest.raises(SgmcmcError, match=r"Input/output error.*see to the disk"),
    ):
        case.go_on()


@fault("read-only folder")
def _(case):
    case.begin()
    words = "cannot be used for checkpoints: .*make it a folder that can be written to"
    with failing(case, "open", errno.EROFS, "lock"), pytest.raises(SgmcmcError, match=words):
        case.go_on()


@fault("read-only parent")
def _(case):
    with failing(case, "mkdir", errno.EACCES, "run"), pytest.raises(SgmcmcError, match="Permission denied; make it a folder"):
        case.go_on()
    assert not case.folder.exists()


@fault("folder is a file")
def _(case):
    case.folder.write_text("a letter")
    with pytest.raises(SgmcmcError, match=r"cannot be used for checkpoints: .*make it a folder"):
        case.go_on()
    assert case.folder.read_text() == "a letter"
    case.folder.unlink()


@fault("folder of something else")
def _(case):
    case.folder.mkdir()
    (case.folder / "thesis.tex").write_text("chapter 1")
    with pytest.raises(InputError, match=r"holds other files \(thesis.tex\) and no manifest.json"):
        case.go_on()
    assert [path.name for path in case.folder.iterdir()] == ["thesis.tex"]
    (case.folder / "thesis.tex").unlink()


@fault("second process")
def _(case):
    case.begin()
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    command = [sys.executable, "-c", hold, case.folder / "lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(SgmcmcError, match=r"(process|another process) .*running in .*wait for it, or use another folder"):
            case.go_on()
        assert case.held().shape[1] == HALF
        other.communicate(b"\n")


@fault("second call")
def _(case):
    refusals = []

    def again(figures):
        try:
            case.go_on()
        except SgmcmcError as error:
            refusals.append(str(error))

    same(case.go_on(progress=again)["beta"], undisturbed())
    assert "this process already is running in" in refusals[0]


# --- files


def goes_back(case, damage):
    case.begin()
    damage()
    with pytest.warns(SgmcmcWarning, match=r"going back to the checkpoint before, of \d+ draws"):
        held = case.held()
    assert 0 < held.shape[1] < HALF
    same(held, undisturbed()[:, : held.shape[1]])
    with pytest.warns(SgmcmcWarning, match="going back"):
        same(case.go_on()["beta"], undisturbed())
    case.committed = WHOLE


def tells(case, damage, words, mended):
    """Reading and going on both say what is wrong; neither makes it worse."""
    case.begin()
    kept = {path: path.read_bytes() for path in case.folder.iterdir()}
    damage()
    for attempt in (case.held, case.go_on):
        with pytest.raises(SgmcmcError, match=words):
            attempt()
    for name in mended:
        (case.folder / name).write_bytes(kept[case.folder / name])
    assert case.held().shape[1] == HALF


@fault("state truncated")
def _(case):
    state = case.folder / "state.npz"
    goes_back(case, lambda: os.truncate(state, state.stat().st_size // 2))


@fault("state flipped")
def _(case):
    goes_back(case, lambda: flip(case.folder / "state.npz", 200))


@fault("state deleted")
def _(case):
    case.begin()
    (case.folder / "state.npz").unlink()
    case.committed = case.held().shape[1]
    assert 0 < case.committed < HALF


@fault("both states damaged")
def _(case):
    states = ["state.npz", "state.previous.npz"]
    words = "state.npz is damaged.*intact are 300 whole draws in kept.draws. Use another folder"
    tells(case, lambda: [os.truncate(case.folder / state, 100) for state in states], words, states)


@fault("draws truncated")
def _(case):
    draws = case.folder / "kept.draws"
    goes_back(case, lambda: os.truncate(draws, draws.stat().st_size - 1))


@fault("draws truncated further")
def _(case):
    draws = case.folder / "kept.draws"
    words = r"cut short: it holds \d+ draws of 300; .*intact are \d+ whole draws in kept.draws"
    tells(case, lambda: os.truncate(draws, draws.stat().st_size // 2), words, ["kept.draws"])


@fault("draws deleted")
def _(case):
    words = r"kept.draws is not there, though it should hold 300 draws"
    tells(case, (case.folder / "kept.draws").unlink, words, ["kept.draws"])


@fault("manifest damaged")
def _(case):
    manifest = case.folder / "manifest.json"

    def damage():
        manifest.write_text(manifest.read_text().replace("0.001", "0.002"))

    tells(case, damage, "manifest.json is damaged, or was edited", [manifest.name])


@fault("manifest deleted")
def _(case):
    manifest = case.folder / "manifest.json"
    tells(case, manifest.unlink, r"holds other files .* and no manifest.json", [manifest.name])


@fault("set-up damaged")
def _(case):
    case.begin()
    flip(case.folder / "stage-start.npz", 150)
    with pytest.warns(SgmcmcWarning, match="stage-start.npz is damaged: .*computed again"):
        same(case.go_on()["beta"], undisturbed())


# --- another run


def refuses(words, patched=(), **changes):
    def inject(case):
        case.begin()
        before = {path: path.read_bytes() for path in case.folder.iterdir()}
        with case.patch.context() as context:
            for place, value in patched:
                context.setattr(place, value)
            with pytest.raises(InputError, match=f"holds another run: {words}; use another folder, or delete this one"):
                case.go_on(**changes)
        assert {path: path.read_bytes() for path in case.folder.iterdir()} == before
        return False  # another test goes on with just these files

    return inject


def _other_data():
    data = arrays()
    data["X"][7, 1] += 1e-6
    return data


def _next_version(name):
    from importlib.metadata import version

    return "99.0" if name == "sgmcmc" else version(name)


VERSION = ("sgmcmc.checkpoints.fingerprint.version", _next_version)
fault("another log_lik")(refuses("log_lik is another function than .*", lik=partial(log_lik, factor=1.01)))
fault("another captured array")(
    refuses("log_lik captures other arrays .*", lik=partial(log_lik, weight=jnp.asarray([1.0, 1.0, 0.9])))
)
fault("another log_prior")(refuses("log_prior was a function, is None", log_prior=None))
fault("other data")(refuses("the data differ: X has other values", dataset=_other_data()))
fault("another stepsize")(refuses("stepsize was 0.001, is 0.002", stepsize=2e-3))
fault("another seed")(refuses("seed was 1, is 2", seed=2))
fault("another thin")(refuses("thin was 1, is 2", thin=2))
fault("another burn_in")(refuses("burn_in was 0, is 5", burn_in=5))
fault("another keep")(refuses(r"keep\['kept'\] .*", keep=sgmcmc.Moments()))
fault("another n_chains")(refuses("n_chains was 2, is 3", n_chains=3))
fault("another sampler")(refuses("sampler was sgld, is sghmc.*", sampler=sgmcmc.sghmc))
fault("another version")(refuses("sgmcmc was .*, is 99.0", patched=[VERSION]))


@fault("fewer iterations")
def _(case):
    case.begin()
    with pytest.raises(InputError, match=r"holds 300 iterations already and this call asks for 100; ask for more, or read them"):
        case.go_on(n_iters=100)


# --- data


def converted(case):
    path = case.place / "rows"
    sgmcmc.data.convert(arrays(), path, progress=False)
    return path


def after_half(action):
    """A progress function that acts once, in the middle of the chains' run."""
    acted = []

    def progress(figures):
        if figures["total"] == WHOLE and figures["done"] >= HALF and not acted:
            acted.append(True)
            action()

    return progress


@fault("rows truncated before")
def _(case):
    path = converted(case)
    case.begin(dataset=path, rows="window")
    case.expected = call(**case.options)["beta"]
    whole = (path / "X.rows").read_bytes()
    os.truncate(path / "X.rows", 1000)
    with pytest.raises(InputError, match=r"X.rows has 1,000 bytes, the header says 6,000: it was cut short"):
        case.go_on()
    (path / "X.rows").write_bytes(whole)


def truncated_during(rows, words):
    @with_rare_checkpoints
    def inject(case):
        path = converted(case)
        case.options = {"dataset": path, "rows": rows}
        case.expected = call(**case.options)["beta"]
        whole, reads, rows_of = (path / "X.rows").read_bytes(), threading.Lock(), FileColumn.rows

        def truncate():
            """Between two reads: within one the system ends a process that has the file in its memory, whatever it does."""
            with reads:
                os.truncate(path / "X.rows", 100)

        def one_at_a_time(*arguments):
            with reads:
                return rows_of(*arguments)

        case.patch.setattr(FileColumn, "rows", one_at_a_time)
        with pytest.raises(SgmcmcError, match=words) as caught:
            case.go_on(progress=after_half(truncate))
        case.check_all_saved(caught.value.result, HALF)
        (path / "X.rows").write_bytes(whole)

    return inject


fault("rows truncated during, windows")(truncated_during("window", r"X.rows: the file ends within rows"))
fault("rows truncated during, random")(truncated_during("random", r"X.rows: expected a file of 6,000 bytes, found 100"))


@fault("rows header damaged")
def _(case):
    path = converted(case)
    case.begin(dataset=path, rows="random")
    case.expected = call(**case.options)["beta"]
    header = (path / "header.json").read_text()
    (path / "header.json").write_text(header.replace("500", "499"))
    with pytest.raises(InputError, match=r"header.json is damaged"):
        case.go_on()
    (path / "header.json").write_text(header)


@fault("rows deleted")
def _(case):
    path = converted(case)
    case.options = {"dataset": path, "rows": "window"}
    case.expected = call(**case.options)["beta"]
    same(case.go_on(progress=after_half(lambda: shutil.rmtree(path)))["beta"], case.expected)
    with pytest.raises(InputError, match=r"is not a folder; expected one made by sgmcmc.data.convert"):
        case.go_on()
    same(case.held(), case.expected)
    return False  # there is nothing left to go on with


def mapped(case):
    X = np.lib.format.open_memmap(case.place / "X.npy", "w+", np.float32, (N, D))
    X[:] = arrays()["X"]
    return X, {"X": X, "y": arrays()["y"]}


@fault("NaN in a memory map")
def _(case):
    X, dataset = mapped(case)
    case.begin(dataset=dataset, rows="random")
    case.expected = undisturbed()
    before, X[321, 1] = X[321, 1], np.nan
    with pytest.raises(InputError, match="row 321"):
        case.go_on()
    X[321, 1] = before


@fault("NaN during the run")
@with_rare_checkpoints
def _(case):
    X, dataset = mapped(case)
    case.options, case.expected = {"dataset": dataset, "rows": "random"}, undisturbed()
    with pytest.raises(sgmcmc.DivergenceError, match="is not finite") as caught:
        case.go_on(progress=after_half(lambda: X.fill(np.nan)))
    case.check_all_saved(caught.value.result, HALF)
    X[:] = arrays()["X"]


class Remote:
    """An array of the user's that can be cut off."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.ndim, self.connected = values, values.shape, values.dtype, values.ndim, True

    def __len__(self):
        return len(self.values)

    def __getitem__(self, place):
        if not self.connected:
            raise ConnectionError("the server has gone away")
        return self.values[place]


@fault("rows raise")
@with_rare_checkpoints
def _(case):
    X = Remote(arrays()["X"])
    case.options, case.expected = {"dataset": {"X": X, "y": arrays()["y"]}, "rows": "random"}, undisturbed()
    with pytest.raises(ConnectionError, match="gone away"):
        case.go_on(progress=after_half(lambda: setattr(X, "connected", False)))
    case.committed = HALF
    X.connected = True


# --- chains, signals and the user's own functions


@fault("chain diverges")
@with_rare_checkpoints
def _(case):
    def growing(step):
        return 1e-3 * 1.06**step

    attempts = []
    for _ in range(2):
        with pytest.raises(sgmcmc.DivergenceError) as caught:
            case.go_on(stepsize=growing)
        attempts.append(caught.value)
        case.check_all_saved(caught.value.result, 50)
    assert str(attempts[0]) == str(attempts[1])
    loaded = sgmcmc.load(case.folder)
    same(loaded.weights, attempts[0].result.weights)
    return False  # it can only go on as it went before


@fault("Ctrl-C in the mode search")
def _(case):
    case.options = {"sampler": sgmcmc.sgldcv, "precondition": "laplace", "stepsize": 0.1}
    stages = []

    def interrupt(figures):
        stages.append(figures["stage"])
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        case.go_on(progress=interrupt)
    assert stages != ["sgldcv"]
    case.check()  # while the exception, and with it every frame of the call, is still alive
    assert caught.value is not None


def interrupted(case, *signals):
    with pytest.warns(SgmcmcWarning, match=r"interrupted: the result holds the \d+ draws made so far; the same call goes on"):
        result = case.go_on(progress=after_half(lambda: [signal.raise_signal(number) for number in signals]))
    case.check_all_saved(result, HALF)


fault("Ctrl-C")(with_rare_checkpoints(lambda case: interrupted(case, signal.SIGINT)))
fault("Ctrl-C twice")(with_rare_checkpoints(lambda case: interrupted(case, signal.SIGINT, signal.SIGINT)))
fault("SIGTERM twice")(with_rare_checkpoints(lambda case: interrupted(case, signal.SIGTERM, signal.SIGTERM)))


@fault("Ctrl-C in a checkpoint")
def _(case):
    real, pressed = os.replace, []

    def replace(source, target):
        if str(target).endswith("state.npz") and case.held().shape[1] > HALF and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return real(source, target)

    case.begin()
    case.patch.setattr(os, "replace", replace)
    with pytest.warns(SgmcmcWarning, match="interrupted"):
        result = case.go_on()
    case.check_all_saved(result, HALF + 1)


@fault("progress raises")
@with_rare_checkpoints
def _(case):
    def fail():
        raise ZeroDivisionError("in the user's own function")

    with pytest.raises(ZeroDivisionError, match="user's own"):
        case.go_on(progress=after_half(fail))
    case.committed = HALF


@fault("keep without state")
def _(case):
    assert call(keep=Last()).kept["beta"].shape == (2, D)
    with pytest.raises(InputError, match=r"cannot go into a checkpoint; expected a store with state\(\) and restore"):
        case.go_on(keep=Last())


@fault("refused call")
def _(case):
    case.options = {"stepsize": lambda step: 1e-3 / (1 + step) ** 0.3}
    with pytest.raises(InputError, match="diagnose=True came with a stepsize that changes"):
        case.go_on(diagnose=True)


@fault("results outlive their file")
def _(case):
    """A map of a file that became shorter would end the process."""
    case.begin()
    case.patch.setattr("sgmcmc.checkpoints.places.SAVE_SECONDS", 1000.0)
    with failing(case, "fsync", errno.ENOSPC, "state.npz.tmp"):
        with pytest.raises(SgmcmcError, match="free some space") as first:
            case.go_on()
        with pytest.raises(SgmcmcError, match="boom"):
            case.go_on(progress=_boom)
    held = first.value.result["beta"]
    assert held.shape[1] > HALF
    same(held, undisturbed()[:, : held.shape[1]])


def _boom(figures):
    raise SgmcmcError("boom")


@fault("run inside a run")
def _(case):
    case.begin()
    other = call(case.folder / "second", seed=2)
    same(sgmcmc.load(case.folder / "second")["beta"], other["beta"])


@fault("sample made longer")
def _(case):
    def sampled(checkpoint=None, **options):
        start = {"beta": np.zeros(D, np.float32)}
        told = {"draws": 50, "chains": 2, "seed": 1, "progress": False, "target_ess": 150}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SgmcmcWarning)  # so few draws, whatever they look like
            return sgmcmc.sample(log_lik, arrays(), start, log_prior=log_prior, checkpoint=checkpoint, **(told | options))

    case.expected = np.array(sampled(case.folder)["beta"])
    case.finish, case.committed = partial(sampled, case.folder), case.expected.shape[1]
    assert case.committed > 50


# --- odd runs


def test_functions_that_are_kept_see_what_the_user_sees(small_steps, tmp_path):
    """A simplex of three moves as two numbers."""
    to_plane = jnp.arange(6.0).reshape(3, 2)

    def lik(params, batch):
        return (batch["y"] * jnp.log(params["w"][0]) + (1 - batch["y"]) * jnp.log1p(-params["w"][0])).sum()

    def run(checkpoint=None, n_iters=100):
        keep = {"plane": sgmcmc.Expectation(lambda params: params["w"] @ to_plane), "draws": sgmcmc.Trace()}
        start, usual = {"w": np.ones(3) / 3}, {"minibatch_size": 10, "seed": 1, "n_chains": 2, "progress": False}
        constraints = {"w": sgmcmc.constraints.simplex}
        return sgmcmc.sgld(
            lik, arrays(), start, 1e-3, constraints=constraints, keep=keep, n_iters=n_iters, checkpoint=checkpoint, **usual
        )

    whole, folder = run(), tmp_path / "run"
    run(folder, 40)
    resumed = run(folder)
    loaded = sgmcmc.load(folder)
    for result in (resumed, loaded):
        same(result["w"], whole["w"])
        np.testing.assert_allclose(result.kept["plane"], whole.kept["plane"], rtol=1e-5)


def test_weights_are_of_the_draws_and_not_of_another_trace(small_steps, tmp_path):
    keep = {"sums": sgmcmc.Trace(lambda params: params["beta"].sum(), thin=5), "draws": sgmcmc.Trace(thin=2)}
    made = call(tmp_path / "run", n_iters=100, keep=keep, stepsize=lambda step: 1e-3 / (1 + step) ** 0.3)
    loaded = sgmcmc.load(tmp_path / "run")
    assert loaded["beta"].shape == (2, 50, D)
    assert loaded.kept["sums"].shape == (2, 20)
    same(loaded.weights, made.weights)


def test_paths_of_any_kind(small_steps, half_done, tmp_path, monkeypatch):
    """Spaces, other alphabets, a percent sign; and a relative path stays what it was when the program changes its folder."""
    monkeypatch.chdir(tmp_path)
    path = "läufe von heute/100 %41 ε"
    shutil.copytree(half_done, path)
    result = call(path, progress=lambda figures: os.chdir("/"))
    monkeypatch.chdir(tmp_path)
    same(result["beta"], undisturbed())
    same(sgmcmc.load(path)["beta"], undisturbed())


def test_set_up_is_computed_once(small_steps, tmp_path):
    """Search, survey and choices: a run that goes on repeats none of them."""
    stages = []
    options = {"sampler": sgmcmc.sgldcv, "rows": "importance", "precondition": "laplace", "stepsize": "auto"}
    for n_iters in (HALF, WHOLE):
        stages.append(set())
        result = call(tmp_path / "run", n_iters=n_iters, progress=lambda f: stages[-1].add(f["stage"]), **options)
    assert "sgldcv" in stages[0]
    assert len(stages[0]) > 2
    assert stages[1] == {"sgldcv"}
    same(result["beta"], undisturbed(**options))


@pytest.mark.slow
def test_draws_on_disk_are_not_in_memory(tmp_path):
    """500 MB of draws: the process never holds more than a tenth of them."""

    def anonymous():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

    def lik(params, batch):
        return -0.5 * batch["y"].sum() * (params["w"] ** 2).sum() / N

    found, start, usual = [], {"w": np.zeros(12_500, np.float32)}, {"minibatch_size": 10, "seed": 1, "thin": 2}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sgmcmc.run.loop.LARGEST_CHUNK", 64)
        result = sgmcmc.sgld(
            lik, arrays(), start, 1e-3, n_iters=20_000, checkpoint=tmp_path / "run", **usual,
            progress=lambda figures: found.append(anonymous()),
        )  # fmt: skip
    assert result["w"].nbytes == 500_000_000
    assert max(found) - found[len(found) // 10] < 50e6  # the first tenth compiles
    before = anonymous()
    assert sgmcmc.load(tmp_path / "run")["w"].shape == (10_000, 12_500)
    assert anonymous() - before < 50e6
