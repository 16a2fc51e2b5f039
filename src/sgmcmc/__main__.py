"""The command `sgmcmc`: regressions and their predictions, data to folders of rows, pages about runs, a demonstration, versions.
`python -m sgmcmc` is the same.

The demonstration is a logistic regression on a million rows: data made on the spot, sampled by `sgmcmc.sample`, compared with the
truth.
"""

from __future__ import annotations

import sys
import time
import warnings
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
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: click.echo(f"sgmcmc: {message}", err=True)
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
    """Stochastic gradient MCMC: regressions by formula, folders of rows, pages about runs, a demonstration."""


@main.command()
def version() -> None:
    """The versions of sgmcmc, JAX and Python."""
    click.echo(f"sgmcmc {installed('sgmcmc')}, JAX {installed('jax')}, Python {sys.version.split()[0]}")


@main.command(name="fit", short_help="A regression by formula, from files to a folder.")
@click.argument("formula")
@click.argument("frame", nargs=-1, required=True)
@click.option("--out", "run", type=click.Path(file_okay=False, path_type=Path), required=True,
              help="The folder of the run: draws, formula, and the page report.html.")  # fmt: skip
@click.option("--family", default="gaussian", show_default=True, help="Such as bernoulli, poisson, gamma or weibull.")
@click.option("--link", help="Where the family has more than one.")
@click.option("--missing", multiple=True, metavar="drop|COLUMN=VALUE", help="What to do about missing values: drop such rows, or "
              "what goes in their place, such as age=median or region=unknown. May be given several times.")  # fmt: skip
@click.option("--prior", multiple=True, metavar="NAME=LAW", help="Such as 'age=Normal(0, 0.1)' or 'sd(region)=HalfNormal(0.5)', "
              "on the scale of the columns. May be given several times.")  # fmt: skip
@click.option("--levels", multiple=True, metavar="COLUMN=A,B,...", help="Levels in their order, the baseline first.")
@click.option("--weights", help="A column that says how often each row counts.")
@click.option("--draws", type=click.IntRange(20), default=2_500, show_default=True, help="Draws of each chain.")
@click.option("--chains", type=click.IntRange(1), default=4, show_default=True, help="Chains.")
@click.option("--target-ess", type=click.IntRange(1), help="Go on until every number is worth so many independent draws.")
@click.option("--engine", default="auto", show_default=True, help="auto, nuts or sgmcmc.")
@click.option("--seed", type=click.IntRange(0), help="By default one is drawn and kept.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def fit_(
    formula: str, frame: tuple[str, ...], run: Path, missing: tuple[str, ...], prior: tuple[str, ...], levels: tuple[str, ...],
    quiet: bool, **told: Any,
) -> None:  # fmt: skip
    """The regression FORMULA of FRAME (CSV, Parquet or Arrow files of any size), kept in a folder.

    The same command again goes on where it was, or has its draws at once.

    \b
    Examples:
      sgmcmc fit "y ~ age + (1 | region)" claims.parquet --family bernoulli --out run/
      sgmcmc fit "claims ~ age + offset(log(years))" claims-*.csv --family poisson --missing age=median --out run/
    """
    from sgmcmc.models.regression import told as words

    fit = sgmcmc.glm(
        formula, words.files(frame), missing=words.missing(missing), priors=words.priors(prior), levels=words.levels(levels),
        checkpoint=run, progress=not quiet, **told,
    )  # fmt: skip
    page = fit.report(run / "report.html", formula)
    if not quiet:
        click.echo(f"{words.summary(fit)}\n\n{fit.decisions}\n\n{fit.health()}\n\n{page}: {verdict_of(fit)}")


@main.command(short_help="Predictions of a regression for the rows of files.")
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.argument("frame", nargs=-1, required=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="A .parquet or .csv file.")
@click.option("--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.9, show_default=True,
              help="How much the interval holds.")  # fmt: skip
@click.option("--of", type=click.Choice(["outcome", "mean"]), help="What the interval is of: single outcomes, or their mean. By "
              "default outcomes where these are numbers, and the probability where they are classes or 0 and 1.")  # fmt: skip
@click.option("--keep", metavar="COLUMN,...", help="Columns of FRAME that go into the file too.")
@click.option("--draws", type=click.IntRange(20), default=500, show_default=True, help="So many of the draws.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of outcomes and of new levels.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def predict(run: Path, frame: tuple[str, ...], out: Path, keep: str | None, quiet: bool, **told: Any) -> None:
    """Mean and interval for every row of FRAME by the regression RUN, a folder that fit made or a file that fit.save made.

    \b
    Examples:
      sgmcmc predict run/ new.csv --out predictions.parquet
      sgmcmc predict run/ new.parquet --keep policy --of mean --out predictions.csv
    """
    from sgmcmc.models.regression import told as words
    from sgmcmc.models.regression.streaming import predictions_to_file

    fit = sgmcmc.load(run)
    if not isinstance(fit, sgmcmc.Regression):
        raise sgmcmc.InputError(f"{run} is no regression; expected what sgmcmc fit, or glm with checkpoint=, has made")
    kept = keep.split(",") if keep else []
    count = predictions_to_file(fit, words.files(frame), out, keep=kept, progress=not quiet, **told)
    if not quiet:
        click.echo(f"{out}: {count:,} rows")


@main.command(short_help="Files to a folder of rows that samplers read from.")
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


@main.command(short_help="A page about a run, also while it goes on.")
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
