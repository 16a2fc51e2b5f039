"""All methods on covertype, one after the other, each in a fresh process: the tables and the figure."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from benchmarks.auto import covertype, nuts, peers
from benchmarks.common.freshly import NotEndedError, freshly
from benchmarks.common.stages import middle, say
from benchmarks.common.table import table
from sgmcmc.results.pictures import COLOURS

SIX = ("sgld", "sghmc", "sgnht", "sgldcv", "sghmccv", "sgnhtcv")
OWN_CENTRE = " (centre found by the library)"
USUAL = "2500"
"""Draws that `sample` makes when nothing is said."""

PATIENCE = 4.0
"""Times its seconds that a peer may take: one that cannot be stopped on the way is ended then."""

MARKS = "v^<>"


def measure(draws: tuple[int, ...], rounds: int, nuts_seconds: float, peer_seconds: float, quick: bool) -> dict[str, Any]:
    article = {}
    for label in SIX:
        for own_centre in (False, True) if label.endswith("cv") else (False,):
            name = label + OWN_CENTRE if own_centre else label
            article[name] = freshly(covertype.by_the_article, label=label, own_centre=own_centre, quick=quick)
    runs = [{count: freshly(covertype.by_sample, draws=count, seed=seed) for count in draws} for seed in range(1, rounds + 1)]
    result = {
        "reference": covertype.own_errors(),
        "sample": {str(count): middle([run[count] for run in runs]) for count in draws},
        "laplace": freshly(covertype.by_laplace),
        "article": article,
        "peers": {name: by_peer(name, peer_seconds) for name in peers.PEERS},
    }
    for name, given in (("nuts", False), ("nuts given", True)):
        say(f"{name}: {nuts_seconds:.0f} s")
        result[name] = freshly(nuts.by_nuts, budget=nuts_seconds, given=given)
    return result


def by_peer(name: str, seconds: float) -> dict[str, Any]:
    """What it has on the way; nothing, if it does not end."""
    say(f"{name}: {seconds:.0f} s")
    try:
        return freshly(peers.by, name=name, budget=seconds, patience=PATIENCE * seconds)
    except NotEndedError:
        return {"path": [], "warm_up": 0, "ended_after": PATIENCE * seconds}


def usual(result: dict[str, Any]) -> dict[str, Any]:
    return result["sample"].get(USUAL) or list(result["sample"].values())[-1]


def best(result: dict[str, Any], error: str) -> str:
    """The article's method with the smallest error."""
    return min(result["article"], key=lambda name: result["article"][name][error])


def gradients_per_iteration(run: dict[str, Any]) -> float:
    """On average after the warm-up, or where that is not over, in the second half."""
    return fmean(run["steps"][run["warm_up"] :] or run["steps"][len(run["steps"]) // 2 :])


def extrapolated(run: dict[str, Any], independent: float) -> float:
    """Seconds for so many independent draws, were every iteration one of them and nothing else to do."""
    return independent * gradients_per_iteration(run) * run["seconds_per_gradient"]


def report(result: dict[str, Any]) -> str:
    ours = usual(result)
    return "\n".join([
        "## Covertype", "",
        "Logistic regression with Laplace priors on all 581,012 rows, 55 numbers, beside the reference posterior "
        "(`references/covertype_laplace.json`). Errors of means in posterior sds, of sds relative; root mean square and largest "
        "of the 55. Each line is a fresh process: seconds from the data in memory to the draws, compilation included. Row "
        "gradients in passes over the data: 1 is 581,012.", "",
        table(["", "seconds", "passes", "means, rms", "largest", "sds, rms", "largest"], _lines(result)), "",
        f"`sample`: 4 chains, nothing set but the draws per chain; medians of {len(ours['rounds'])} seeds. The article's six: "
        f"its step sizes, minibatches of 500 and numbers of iterations, one chain. Of these {best(result, 'mean_rms')} has the "
        f"smallest error of means, {best(result, 'sd_rms')} of sds. NUTS: NumPyro's, one chain in float32, "
        "stopped when its time was up; errors are those of the draws after the warm-up, or of the second half where that is "
        "not over.", "",
        "Side by side:", "",
        table(["error", "reference's own (se)", "sample", "Laplace approximation"], _side_by_side(result, ours)), "",
        f"Where the {ours['seconds']:.0f} s of `sample` go: "
        + ", ".join(f"{name} {seconds:.1f}" for name, seconds in ours["stages"].items())
        + " (each with the compilation it needs).", "",
        *_nuts_words(result, ours), *_peers_words(result),
    ])  # fmt: skip


def _lines(result: dict[str, Any]) -> list[list[str]]:
    lines = [_line(f"sample, {int(count):,} draws{_flagged(run)}", run) for count, run in result["sample"].items()]
    lines.append(_line("Laplace approximation", result["laplace"]))
    lines += [_line(name, run) for name, run in result["article"].items()]
    for name, label in (("nuts", "NUTS"), ("nuts given", "NUTS, given mode and whitening")):
        for look in result[name]["path"][-1:] if name == "nuts" else result[name]["path"]:
            warming = ", in warm-up" if look["iterations"] <= result[name]["warm_up"] else ""
            lines.append(_line(f"{label}, iteration {look['iterations']}{warming}", look))
    return lines


def _flagged(run: dict[str, Any]) -> str:
    count = sum(not one["healthy"] for one in run["rounds"])
    return f" (health: {count} of {len(run['rounds'])} flagged)" if count else ""


def _line(label: str, run: dict[str, Any]) -> list[str]:
    return [label, f"{run['seconds']:.1f}", f"{run['row_gradients'] / 581_012:,.0f}", *_four(run)]


def _four(run: dict[str, Any]) -> list[str]:
    return [f"{run[key]:.3f}" for key in ("mean_rms", "mean_max", "sd_rms", "sd_max")]


def _side_by_side(result: dict[str, Any], ours: dict[str, Any]) -> list[list[str]]:
    names = ("means, rms (sd)", "means, largest (sd)", "sds, rms", "sds, largest")
    return [list(line) for line in zip(names, *map(_four, (result["reference"], ours, result["laplace"])), strict=True)]


def _nuts_words(result: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    words = [
        f"The means of `sample` are as precise as those of {ours['independent']:,.0f} independent draws, after "
        f"{ours['seconds']:.0f} s. **Extrapolated**, not measured: NUTS with an independent draw from every iteration and no "
        "warm-up, from the measured seconds per gradient and gradients per iteration,"
    ]
    for name, label in (("nuts", "as it ran until it was stopped, in its warm-up"), ("nuts given", "given mode and whitening")):
        run = result[name]
        seconds = extrapolated(run, ours["independent"])
        words.append(
            f"- {label}: {gradients_per_iteration(run):.0f} gradients × {1000 * run['seconds_per_gradient']:.0f} ms, "
            f"{seconds / 60:,.0f} minutes in all, {seconds / ours['seconds']:,.0f} times as long as `sample`."
        )
    return [words[0], "", *words[1:]]


def _peers_words(result: dict[str, Any]) -> list[str]:
    """The peers, as they were looked at on the way."""
    if "peers" not in result:
        return []
    lines = [_line("sample", usual(result))]
    for name, run in result["peers"].items():
        lines += [_line(f"{name}, iteration {look['iterations']:,}", look) for look in run["path"]]
        if not run["path"]:
            lines.append([f"{name}, ended in its warm-up", f"{run['ended_after']:.0f}", *[""] * 5])
    return [
        "", "What one would pick instead, each as its own documentation shows it, one chain, looked at on the way:", "",
        table(["", "seconds", "passes", "means, rms", "largest", "sds, rms", "largest"], lines),
    ]  # fmt: skip


def figure(result: dict[str, Any]) -> Figure:
    """Accuracy against seconds."""
    picture = Figure(figsize=(10, 4.6), layout="constrained")
    labels = {"mean_rms": "error of the means, rms (posterior sds)", "sd_rms": "relative error of the sds, rms"}
    for axes, (error, label) in zip(picture.subplots(1, 2), labels.items(), strict=True):
        _panel(axes, result, error)
        axes.set(xscale="log", yscale="log", xlabel="time, compilation included (seconds)", ylabel=label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, lw=0.5)
        axes.margins(y=0.1)
    handles, names = axes.get_legend_handles_labels()
    picture.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    picture.suptitle("Covertype, 581,012 rows: distance from the reference posterior")
    return picture


def _panel(axes: Any, result: dict[str, Any], error: str) -> None:
    ours = usual(result)
    runs = list(result["sample"].values())
    axes.plot([run["seconds"] for run in runs], [run[error] for run in runs], "o-", color=COLOURS[0], label="sample")
    for draws, run in result["sample"].items():
        aside = (5, -11) if run is runs[-1] else (6, 3)
        axes.annotate(f"{int(draws):,}", (run["seconds"], run[error]), aside, textcoords="offset points", fontsize="x-small")
    for name, label, colour in (
        ("nuts given", "NUTS, given mode and whitening", COLOURS[2]),
        ("nuts", "NUTS, stopped in its warm-up", COLOURS[1]),
    ):
        path = result[name]["path"]
        axes.plot([look["seconds"] for look in path], [look[error] for look in path], "s-", ms=4, color=colour, label=label)
        end = (extrapolated(result[name], ours["independent"]), ours[error])
        axes.plot([path[-1]["seconds"], end[0]], [path[-1][error], end[1]], ":", color=colour, lw=1)
        axes.plot(*end, "s", ms=5, mfc="white", color=colour)
    axes.plot([], [], "s:", ms=5, mfc="white", lw=1, color="#777777", label="extrapolated to as many draws as sample has")
    chosen = best(result, error)
    others = [run for name, run in result["article"].items() if name != chosen]
    axes.plot([run["seconds"] for run in others], [run[error] for run in others], "x", ms=4, alpha=0.5, color=COLOURS[3])
    top = result["article"][chosen]
    axes.plot(top["seconds"], top[error], "D", color=COLOURS[3], label="the article's six: the best; crosses: the others")
    for mark, (name, run) in zip(MARKS, result.get("peers", {}).items(), strict=False):
        seconds, errors = [look["seconds"] for look in run["path"]], [look[error] for look in run["path"]]
        axes.plot(seconds, errors, f"{mark}-", ms=4, lw=0.8, color="#555555", label=name)
    laplace = result["laplace"]
    axes.plot(
        [laplace["seconds"], axes.get_xlim()[1]], 2 * [laplace[error]], "--", color=COLOURS[4], label="Laplace approximation"
    )
    own = result["reference"][error]
    axes.axhline(own, color="#777777", ls="-.", lw=1, label="the reference's own Monte Carlo error")
