"""The command `sgmcmc`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import click

from sgmcmc.core.errors import SgmcmcError

EXPERIMENTS = ("stan", "gaussian-mixture", "logistic-regression", "neural-network")
STOPPED = 130
"""The exit code of a command that was interrupted, as shells have it."""


class _Group(click.Group):
    """Errors of the library in one line on stderr and exit code 1; Ctrl-C is exit code 130. Anything else is a bug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (SgmcmcError, OSError) as error:
            click.echo(f"sgmcmc: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("sgmcmc: stopped; the same command goes on where it was", err=True)
            ctx.exit(STOPPED)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Documentation of a command: sgmcmc COMMAND --help.",
)
def main() -> None:
    """Stochastic gradient MCMC: a demonstration, and the article's experiments run again."""


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")


@main.command()
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default="demo.png", show_default=True, help="The picture."
)
@click.option("--rows", type=click.IntRange(100), default=1_000_000, show_default=True, help="Rows of data.")
@click.option("--draws", type=click.IntRange(100), default=2_500, show_default=True, help="Draws of each chain.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of data and chains.")
@quiet_option
def demo(out: Path, rows: int, draws: int, seed: int, quiet: bool) -> None:
    """Logistic regression on a million rows, with a picture.

    \b
    Examples:
      sgmcmc demo
      sgmcmc demo --rows 100000 --out posterior.png
    """
    from sgmcmc.demo import run

    run(out, rows, draws, seed, not quiet, _teller(quiet))


@main.command()
@click.argument("experiment", type=click.Choice([*EXPERIMENTS, "all"]))
@click.option("--quick", is_flag=True, help="Shorter chains and fewer sizes: minutes instead of half an hour.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default="reproduction", show_default=True,
    help="The folder for report, pictures, figures and finished parts.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=None, help="A seed instead of the article's.")
@quiet_option
def reproduce(experiment: str, quick: bool, out: Path, seed: int | None, quiet: bool) -> None:
    """Run the article's experiments again, draw its figures and judge its claims.

    Writes report.md, and for each experiment a JSON file and pictures (PNG and SVG). Finished parts are kept in the folder:
    after an interruption the same command goes on where it was. Covertype and MNIST come from the folder named in
    SGMCMC_DATA, or are downloaded.

    \b
    Examples:
      sgmcmc reproduce all --quick
      sgmcmc reproduce logistic-regression --out results --seed 7
    """
    from reproduction.reproduce import check_data, reproduce_one

    names = EXPERIMENTS if experiment == "all" else (experiment,)
    check_data(names, progress=not quiet)
    if len(names) == 1:
        reproduce_one(experiment, out, quick, seed, not quiet, _teller(quiet))
    for name in names if len(names) > 1 else ():
        _in_a_process_of_its_own(["reproduce", name, "--out", str(out)], quick=quick, quiet=quiet, seed=seed)
    _teller(quiet)(f"report: {out / 'report.md'}")


def _in_a_process_of_its_own(command: list[str], **options: Any) -> None:
    """So that an experiment's memory is given back when it ends, and is not part of what the next one is measured to need."""
    for name, value in options.items():
        if value is not None and value is not False:
            command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    ended = subprocess.run([sys.executable, "-m", "sgmcmc", *command], check=False)
    if ended.returncode:
        raise click.exceptions.Exit(ended.returncode)


@main.command()
def version() -> None:
    """The versions of sgmcmc, JAX and Python."""
    click.echo(f"sgmcmc {installed('sgmcmc')}, JAX {installed('jax')}, Python {sys.version.split()[0]}")


def _teller(quiet: bool) -> Any:
    return (lambda *_: None) if quiet else click.echo
