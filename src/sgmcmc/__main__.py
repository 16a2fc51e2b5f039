"""The command `sgmcmc`: a demonstration, data to folders of rows, pages about runs, and versions. `python -m sgmcmc` is the same.

The demonstration is a logistic regression on a million rows: data made on the spot, sampled by `sgmcmc.sample`, compared with the
truth.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import jax
import numpy as np

import sgmcmc

if TYPE_CHECKING:
    import pandas as pd

STOPPED = 130
"""The exit code of a command that was interrupted, as shells have it."""

D = 10
NAMES = ["bias", *(f"beta[{j}]" for j in range(D))]
FORMATS = {"true": "+.4f", "mean": "+.4f", "sd": ".4f", "z": "+.2f"}
FORMATS |= {"mcse": ".5f", "ess": ".0f", "r_hat": ".3f", "inflation": ".3f"}


class _Group(click.Group):
    """Errors of the library in one line on stderr and exit code 1; Ctrl-C is exit code 130. Anything else is a bug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (sgmcmc.SgmcmcError, OSError) as error:
            click.echo(f"sgmcmc: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("sgmcmc: stopped", err=True)
            ctx.exit(STOPPED)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog="More: sgmcmc COMMAND --help.")
@click.version_option(installed("sgmcmc"), "-V", "--version", message="sgmcmc %(version)s")
def main() -> None:
    """Stochastic gradient MCMC: a demonstration, data to folders of rows, pages about runs, and what is installed."""


@main.command()
def version() -> None:
    """The versions of sgmcmc, JAX and Python."""
    click.echo(f"sgmcmc {installed('sgmcmc')}, JAX {installed('jax')}, Python {sys.version.split()[0]}")


@main.command()
@click.argument("source", nargs=-1, required=True)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--columns", multiple=True, metavar="ARRAY=COLUMN,...", help="Which columns make which array, such as X=age,dose; "
              "ARRAY=... takes all others. Give it once for each array.")  # fmt: skip
@click.option("--format", "form", help="By default the one that the names of the files say.")
@click.option("--separator", default=",", show_default=True, help="What is between the columns of text.")
@click.option("--no-shuffle", is_flag=True, help="Leave the rows in their order.")
@click.option("--overwrite", is_flag=True, help="Replace what is in the folder.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def convert(
    source: tuple[str, ...], folder: Path, columns: tuple[str, ...], form: str | None, separator: str, no_shuffle: bool,
    overwrite: bool, quiet: bool,
) -> None:  # fmt: skip
    """Files of SOURCE (CSV, Parquet, Arrow, LIBSVM, a Zarr store) to a FOLDER of rows that samplers read from.

    \b
    Examples:
      sgmcmc convert claims-*.csv rows/
      sgmcmc convert claims.parquet rows/ --columns X=age,power --columns y=claims
    """
    files = source[0] if len(source) == 1 else list(source)
    rows = sgmcmc.data.convert(
        files, folder, columns=chosen_columns(columns), format=form, separator=separator, shuffle=not no_shuffle,
        overwrite=overwrite, progress=not quiet,
    )  # fmt: skip
    if not quiet:
        arrays = ", ".join(f"{name} {column.shape}" for name, column in rows.items())
        click.echo(f"{folder}: {arrays}. Give the folder's path as dataset")


def chosen_columns(told: tuple[str, ...]) -> dict[str, Any] | None:
    """`X=age,dose` as `sgmcmc.data.convert` has it; one name is one column, not a matrix of one."""
    chosen: dict[str, Any] = {}
    for one in told:
        array, equals, names = one.partition("=")
        if not equals or not names:
            raise click.BadParameter(
                f"{one!r}; expected the name of an array and its columns, such as X=age,dose", param_hint="--columns"
            )
        listed = names.split(",")
        chosen[array] = ... if names == "..." else names if len(listed) == 1 else listed
    return chosen or None


@main.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="The page; by default the name of the run, with .html."
)
@click.option("--title", help="Its heading.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def report(run: Path, out: Path | None, title: str | None, quiet: bool) -> None:
    """A page about a run with checkpoint=RUN, also while it goes on.

    \b
    Examples:
      sgmcmc report run/
      sgmcmc report run/ --out fit.html --title "Claims by region"
    """
    fit = sgmcmc.load(run)
    page = fit.report(Path(f"{run.resolve().name}.html") if out is None else out, title)
    if not quiet:
        click.echo(f"{page}: {verdict_of(fit)}")


def verdict_of(fit: sgmcmc.Result) -> str:
    """The headline of its page."""
    from sgmcmc.results.report.page import Page

    return Page(fit).verdict.headline


@main.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default="demo.png", show_default=True, help="Picture.")
@click.option("--rows", type=click.IntRange(100), default=1_000_000, show_default=True, help="Rows of data.")
@click.option("--draws", type=click.IntRange(100), default=2_500, show_default=True, help="Draws of each chain.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of data and chains.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def demo(out: Path, rows: int, draws: int, seed: int, quiet: bool) -> None:
    """Logistic regression on a million rows, with a picture.

    \b
    Examples:
      sgmcmc demo
      sgmcmc demo --rows 100000 --out posterior.png
    """
    say = (lambda *_: None) if quiet else click.echo
    data, truth = make_data(rows, seed)
    say(f"{rows:,} rows, {1 + D} parameters, nothing to tune")

    clock = time.perf_counter()
    params = {"bias": 0.0, "beta": np.zeros(D, np.float32)}
    fit = sgmcmc.sample(log_lik, data, params, log_prior=log_prior, draws=draws, seed=seed, progress=not quiet)
    seconds = time.perf_counter() - clock

    table = beside_the_truth(fit, truth)
    say("\n" + table.to_string(formatters={name: f"{{:{text}}}".format for name, text in FORMATS.items()}))
    say("\nz = (mean - true)/sd: about 95 in 100 should lie between -2 and 2. ess and r_hat measure mixing; inflation,")
    say("the variance of the chain over the posterior's, measures bias.\n")
    say(f"What was decided:\n{fit.decisions}\n\nWhat the checks say:\n{fit.health()}\n")
    say(f"everything, compilation included: {seconds:.1f} s")
    draw(fit, truth, f"Logistic regression on {rows:,} rows", out)
    say(f"picture: {out}")


def make_data(n_rows: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows with correlated columns, and the true values: the bias, then the coefficients."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0.0, 0.5, 1 + D).astype(np.float32)
    common = rng.standard_normal((n_rows, 1), np.float32)
    X = (np.sqrt(0.85) * rng.standard_normal((n_rows, D), np.float32) + np.sqrt(0.15) * common).astype(np.float32)
    p = 1 / (1 + np.exp(-(truth[0] + X @ truth[1:])))
    return {"X": X, "y": rng.random(n_rows, np.float32) < p}, truth


def log_lik(params: Any, batch: Any) -> jax.Array:
    eta = params["bias"] + batch["X"] @ params["beta"]
    return jax.numpy.where(batch["y"], jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta)).sum()


def log_prior(params: Any) -> jax.Array:
    return -0.5 * (params["bias"] ** 2 + (params["beta"] ** 2).sum())


def beside_the_truth(fit: sgmcmc.Result, truth: np.ndarray) -> pd.DataFrame:
    """The summary, with the true values and the distance to them in posterior standard deviations."""
    table = fit.summary().loc[NAMES, ["mean", "sd", "mcse", "ess", "r_hat", "inflation"]]
    table.insert(0, "true", truth)
    table.insert(3, "z", (table["mean"] - table["true"]) / table["sd"])
    return table


def draw(fit: sgmcmc.Result, truth: np.ndarray, title: str, path: Path) -> None:
    """Write the picture: posterior intervals about the true values, the inflation of each variance, and traces."""
    from sgmcmc.results.pictures import overview, save_png  # matplotlib takes a while to import

    draws = np.concatenate([fit["bias"][..., None], fit["beta"]], axis=-1)
    series = [(name, 1000 * (draws[..., j] - truth[j])) for j, name in enumerate(NAMES)]
    table, health = fit.summary(), fit.health()
    inflation = {name: (table.loc[name, "inflation"], table.loc[name, "inflation_se"]) for name in NAMES}
    verdict = "all checks passed" if health.ok else str(health.findings[0])
    save_png(overview(series, inflation, title, verdict, xlabel="posterior minus true value (thousandths)"), path)


if __name__ == "__main__":
    main()
