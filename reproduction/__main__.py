"""The command `python -m reproduction`, to be run in the project's folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reproduction.settings import SETTINGS
from sgmcmc.core.errors import SgmcmcError

EXPERIMENTS = tuple(SETTINGS)
STOPPED = 130
"""The exit code of a command that was interrupted, as shells have it."""


class _Command(click.Command):
    """Errors of the library in one line on stderr and exit code 1; Ctrl-C is exit code 130. Anything else is a bug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (SgmcmcError, OSError) as error:
            click.echo(f"reproduction: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("reproduction: stopped; the same command goes on where it was", err=True)
            ctx.exit(STOPPED)


@click.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("experiment", type=click.Choice([*EXPERIMENTS, "all"]), metavar="EXPERIMENT")
@click.option("--quick", is_flag=True, help="Shorter chains and fewer sizes: minutes instead of half an hour.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default="build/reproduction", show_default=True,
    help="The folder for report, pictures, figures and finished parts.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=None, help="A seed instead of the article's.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def main(experiment: str, quick: bool, out: Path, seed: int | None, quiet: bool) -> None:
    """Run the article's experiments again, draw its figures and judge its claims.

    Writes report.md, and for each experiment a JSON file and pictures (PNG and SVG). Finished parts are kept in the folder:
    after an interruption the same command goes on where it was. Covertype and MNIST come from the folder named in
    SGMCMC_DATA, or are downloaded.

    \b
    EXPERIMENT is one of:
      stan                 section 2
      gaussian-mixture     section 6.1
      logistic-regression  sections 6.2 and 5.1
      neural-network       section 6.3
      all                  all of these, each in a process of its own

    \b
    Examples, in the project's folder:
      python -m reproduction all --quick
      python -m reproduction logistic-regression --out results --seed 7
    """
    from reproduction.reproduce import check_data, check_installed, reproduce_one

    say: Callable[[str], Any] = (lambda _: None) if quiet else click.echo
    names = EXPERIMENTS if experiment == "all" else (experiment,)
    check_installed(names)
    check_data(names, progress=not quiet)
    if len(names) == 1:
        reproduce_one(experiment, out, quick, seed, not quiet, say)
    for name in names if len(names) > 1 else ():
        _in_a_process_of_its_own([name, "--out", str(out)], quick=quick, quiet=quiet, seed=seed)
    say(f"report: {out / 'report.md'}")


def _in_a_process_of_its_own(command: list[str], **options: Any) -> None:
    """So that an experiment's memory is given back when it ends, and is not part of what the next one is measured to need."""
    for name, value in options.items():
        if value is not None and value is not False:
            command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    ended = subprocess.run([sys.executable, "-m", "reproduction", *command], check=False)
    if ended.returncode:
        raise click.exceptions.Exit(ended.returncode)


if __name__ == "__main__":
    main()
