"""The page: advice, a table and a picture of what an effective draw costs."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.common.table import table
from benchmarks.family.fitting import ALLOWED, CHAINS, FEWEST, STEPS

Fits = dict[str, dict[str, dict[str, Any]]]
"""By target, then by sampler."""

BLUE, GREY = "#0072B2", "#999999"

TEXT = f"""# Which one?

Every sampler of the library is dynamics × gradient ([the family](family.md)). Here they are side by side on four targets whose
moments are known. `make bench-family` writes this page; it goes on where it was interrupted, and leaves out covertype where the
data are missing.

## In sentences

- **Begin with `sgmcmc.sample`.** It looks for the mode, whitens, draws rows by importance and runs BAOA: the line
  "BAOA, whitened" with the choices made for you.
- **Scales first.** No dynamics makes up for parameters that differ in scale. `precondition="laplace"` or `"diagonal"` goes with
  every sampler and needs a mode; `RMSLangevin` learns scales as it goes, one for each number.
- **Then the noise.** Control variates (`gradient="control-variates"`) where there is one mode and rows are many; `"svrg"` or
  `"saga"` where no mode can be looked for. `SAGA` carries a table of rows × parameters, `SVRG` reads all rows now and then.
- **Then the dynamics.** `baoa`: its variance on a Gaussian is right at every stable step, so its steps are large and it keeps its
  direction. SGLD needs smaller steps for the same bias; SGHMC takes L gradients for each draw.
- **Gradients that are not to be trusted** (steep tails, a bad start, no idea of a step size): `"barker"`, whose steps are
  bounded.
- **No bias**: `MetropolisHamiltonian`, with minibatches of all rows, or of so many that the variance of its test is below 1.
- **Several modes**: `ReplicaExchange`. Cycles of step sizes (`CosineCycles`) are cheaper to try, and have the weights of the
  modes only where their large steps cross often.

## At equal bias

{CHAINS} chains each, with the same number of rows to look at. Of {len(STEPS)} step sizes a sampler is given the one whose
effective draws are cheapest among those that are right: no mean further than {ALLOWED:g} standard deviations from the truth and
no standard deviation further than {ALLOWED:.0%}, beyond two standard errors, and at least {FEWEST} effective draws of the
slowest number. The table has thousands of row gradients for an effective draw of that number, and in brackets the seconds for
1,000 of them. "off" says how far off the least wrong step size was, in standard deviations; "too slow"
that none gave {FEWEST} effective draws that were right.

- *Gaussian*: ten means, of precisions from 1 to 10,000 a row; 1,000 rows, 50 in a minibatch.
- *Funnel*: a log scale v ~ N(0, 3²) and nine numbers N(0, e^v); the moments are those of v.
- *Two modes*: two normals in the plane, 8 standard deviations apart, of weights 0.7 and 0.3; all chains begin in the smaller.
- *Covertype*: the article's logistic regression, 581,012 rows and 55 coefficients, 500 in a minibatch, in whitened variables for
  all samplers; the truth is a run of 70,000 full gradients (`references/covertype_laplace.json`).

"""

QUICKLY = "Of a quick run, a tenth of the rows: to show that it runs.\n\n"


def page(fits: Fits, quick: bool) -> str:
    picture = "\n\n![Thousands of row gradients for an effective draw, by sampler and target.](../assets/family.png)\n"
    return TEXT + QUICKLY * quick + report(fits) + picture


def report(fits: Fits) -> str:
    names = list(dict.fromkeys(name for found in fits.values() for name in found))
    return table(["sampler", *fits], [[name, *(cell(found.get(name)) for found in fits.values())] for name in names])


def cell(fit: dict[str, Any] | None) -> str:
    """Cost and seconds; or what stood in the way."""
    if fit is None:
        return ""
    if fit["outcome"] == "right":
        return f"{digits(fit['rows_per_draw'] / 1000)} ({digits(fit['seconds_per_1000'])} s)"
    if fit["outcome"] != "off":
        return fit["outcome"]
    if fit["bias"] <= ALLOWED:
        return "too slow"
    return f"off {fit['bias']:.2g}" if math.isfinite(fit["bias"]) else "diverges"


def digits(value: float) -> str:
    """Two of them."""
    return f"{float(f'{value:.2g}'):,.10g}"


def figure(fits: Fits) -> Figure:
    """A panel for each target; grey where the sampler was not right."""
    names = list(dict.fromkeys(name for found in fits.values() for name in found))[::-1]
    made = Figure(figsize=(3.2 * len(fits) + 1.6, 0.3 * len(names) + 1.4), layout="constrained")
    panels = made.subplots(1, len(fits), sharey=True, squeeze=False)[0]
    for axes, (target, found) in zip(panels, fits.items(), strict=True):
        costs = {name: fit["rows_per_draw"] / 1000 for name, fit in found.items() if fit["outcome"] == "right"}
        axes.plot(list(costs.values()), [names.index(name) for name in costs], "o", color=BLUE)
        for name in set(found) - set(costs):
            told = cell(found[name])
            axes.text(0.97, names.index(name), told, transform=axes.get_yaxis_transform(), ha="right", va="center", color=GREY)
        axes.set(xscale="log", title=target, ylim=(-0.7, len(names) - 0.3), xlabel="1,000 row gradients for a draw")
        if costs:
            low, high = math.log10(0.8 * min(costs.values())), math.log10(2 * max(costs.values()))
            axes.set_xlim(10 ** math.floor(low), 10 ** math.ceil(high))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(axis="y", color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(names)), names)
    return made
