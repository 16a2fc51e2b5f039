"""Probabilities near zero, and topics: `python -m benchmarks.simplex`, some minutes. Tables and a picture for the docs."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.common.freshly import ROOT
from benchmarks.common.table import spread, table
from benchmarks.simplex import counts, learning
from benchmarks.simplex.topics import chances, corpus, perplexity

PAGE, PICTURE = ROOT / "docs" / "methods" / "simplex.md", ROOT / "docs" / "assets" / "simplex.png"
MARKS = ("<!-- measured -->\n", "<!-- end -->\n")
STEPSIZES, TOPIC_STEPS = (1.0, 0.3, 0.1, 0.03), (1.0, 0.3, 0.1)
KINDS = {"scir": ("SCIR", "#0072B2"), "sgrld": ("SGRLD", "#D55E00")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="corpora, each with chains of its own")
    parser.add_argument("--quick", action="store_true", help="few and short chains")
    parser.add_argument("--write", action="store_true", help="the tables into docs/methods/simplex.md, and its picture")
    chosen = parser.parse_args()
    known = {
        (kind, eps): show(counts.measured, kind, eps, 100, 20 if chosen.quick else 400) for kind in KINDS for eps in STEPSIZES
    }
    steps, seeds = (100, [1]) if chosen.quick else (learning.STEPS, range(1, chosen.seeds + 1))
    corpora = {seed: corpus(2000, seed=seed) for seed in seeds}
    learnt: dict[Any, list[dict[str, Any]]] = {
        (kind, eps): [show(learning.by_chain, kind, eps, corpora[seed], seed, steps) for seed in seeds]
        for kind in KINDS for eps in TOPIC_STEPS
    }  # fmt: skip
    learnt["variational Bayes", None] = [show(learning.by_variational_bayes, corpora[seed], seed, steps) for seed in seeds]
    truth = [perplexity(chances(one.topics.astype(np.float32), one.seen), one.unseen) for one in corpora.values()]
    tables = f"{of_counts(known)}\n\n{of_topics(learnt, truth)}"
    print(tables)
    if chosen.write:
        draw(known, learnt, truth)
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        PAGE.write_text(before + MARKS[0] + "\n" + tables + "\n\n" + MARKS[1] + rest.partition(MARKS[1])[2])


def show(function: Any, *arguments: Any) -> Any:
    made = function(*arguments)
    told = {name: round(value, 3) for name, value in made.items() if name != "path"}
    print(function.__name__, *(one for one in arguments if isinstance(one, str | float)), told, flush=True)
    return made


def of_counts(known: dict[Any, dict[str, float]]) -> str:
    lines = [
        (KINDS[kind][0], f"{eps:g}", f"{one['ratio']:.3f} ± {one['error']:.3f}", f"{one['others']:.1f}")
        for (kind, eps), one in known.items()
    ]
    header = ("", "ε", "mean of empty categories, over the exact one", "largest error of the others, standard errors")
    return table(header, lines)


def of_topics(learnt: dict[Any, list[dict[str, Any]]], truth: list[float]) -> str:
    lines = [
        (KINDS[kind][0] if kind in KINDS else kind, "" if eps is None else f"{eps:g}",
         *(spread([run[name] for run in runs], 1) for name in ("average", "last")))
        for (kind, eps), runs in learnt.items()
    ]  # fmt: skip
    lines.append(("the topics that made the words", "", spread(truth, 1), spread(truth, 1)))
    return table(("", "ε", "perplexity, averaged predictions", "perplexity, last draw"), lines)


def draw(known: dict[Any, dict[str, float]], learnt: dict[Any, list[dict[str, Any]]], truth: list[float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, (name, colour) in KINDS.items():
        values = [known[kind, eps] for eps in STEPSIZES]
        errors = [2 * one["error"] for one in values]
        left.errorbar(STEPSIZES, [one["ratio"] for one in values], errors, fmt="o-", color=colour, label=name, capsize=3)
        right.plot(*along(learnt[kind, 0.3][0]["path"]), color=colour, label=f"{name}, ε = 0.3")
    right.plot(*along(learnt["variational Bayes", None][0]["path"]), color="#009E73", label="variational Bayes")
    right.axhline(truth[0], color="black", lw=0.8, ls=":", label="the topics that made the words")
    left.axhline(1, color="black", lw=0.8, ls=":")
    left.set(xscale="log", xlabel="step size ε", title="categories without an observation", ylim=(0, None))
    left.set(ylabel="mean / exact posterior mean", xticks=STEPSIZES, xticklabels=[f"{eps:g}" for eps in STEPSIZES])
    left.minorticks_off()
    right.set(xlabel="minibatches of 50 documents", ylabel="perplexity of words left out", title="topics")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=110)


def along(path: list[float]) -> tuple[np.ndarray, list[float]]:
    return learning.EVERY * np.arange(1, len(path) + 1), path


if __name__ == "__main__":
    main()
