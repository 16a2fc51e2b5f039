"""The page: what is said of a result, in the order in which it matters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.core.html import Markup, bullets, element, joined
from sgmcmc.core.trees import leaf_names
from sgmcmc.results.after.check_pictures import panels
from sgmcmc.results.after.checking import check
from sgmcmc.results.report import figures
from sgmcmc.results.report.numbers import TRACED, Numbers, shown
from sgmcmc.results.report.svg import drawing, inline
from sgmcmc.results.report.verdict import LEAST_DRAWS, Verdict, verdict
from sgmcmc.results.tables import INFLATION, as_html, cells
from sgmcmc.results.words import APART, FEW, OFF, Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sgmcmc.results.result import Result

IN_BRIEF = 12
"""Rows of the table in a notebook."""

IN_A_FIGURE = 40
"""Rows of a figure of intervals; more numbers take more figures."""

CHECKED_ROWS, CHECKED_DRAWS, MOST_GROUPED = 4000, 400, 2
"""Rows and draws of predictive checks, and columns by whose groups residuals are shown."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where an object is in memory, which differs from process to process."""


def page(result: Result, title: str | None = None) -> str:
    """All of it, in one text that refers to nothing outside."""
    with drawing():
        writer = Page(result)
        heading = title if title is not None else writer.title
        body = joined([element("h1", heading), writer.facts(), *writer.sections()], "\n")
    template = Template(_file("page.html"))
    return template.substitute(title=element("x", heading)[3:-4], style=_file("page.css").strip(), body=body)


def in_brief(result: Result) -> Markup:
    """What a notebook shows of a result: the verdict and the first of its numbers."""
    writer = Page(result)
    parts = [element("p", element("b", writer.verdict.headline), f": {result!r}")]
    if writer.verdict.health.findings:
        parts.append(bullets(writer.verdict.health.findings))
    if (numbers := writer.numbers) is not None:
        few = numbers.some(list(range(min(len(numbers.names), IN_BRIEF))))
        parts.append(as_html(few.table))
        if len(few.names) < numbers.total:
            parts.append(element("p", element("small", f"{len(few.names)} of {numbers.total:,} numbers; summary() has more.")))
    return joined(parts)


class Page:
    """The parts of one result's page."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.draws = result._named_draws() if result.draws is not None and _made(result) else {}

    @property
    def title(self) -> str:
        names = ", ".join(leaf_names(self.result.final_state.params if not self.draws else self.result.draws))
        return f"Posterior of {names if len(names) < 80 else names[:77] + '...'}"

    @cached_property
    def numbers(self) -> Numbers | None:
        """What of the draws is shown."""
        return shown(self.result, self.draws) if self.draws and self.n_draws > 1 else None

    @property
    def n_draws(self) -> int:
        return next(iter(self.draws.values())).shape[1] if self.draws else 0

    @cached_property
    def verdict(self) -> Verdict:
        return verdict(self.result, self.n_draws)

    def facts(self) -> Markup:
        """A line of how much there is."""
        settings = self.result.settings
        told: dict[str, Any] = {"sampler": settings.get("sampler"), "engine": settings.get("engine")}
        told["rows"] = f"{settings['n_rows']:,}" if "n_rows" in settings else None
        if self.draws:
            chains = len(next(iter(self.draws.values())))
            told["draws"] = f"{chains} × {self.n_draws:,}" if chains > 1 else f"{self.n_draws:,}"
        if self.numbers is not None:
            told["numbers"] = f"{self.numbers.total:,}"
        items = (element("li", f"{name} ", element("b", value)) for name, value in told.items() if value is not None)
        return element("ul", *items, class_="facts")

    def sections(self) -> Iterator[Markup]:
        """The verdict, then what it rests on."""
        yield self.said()
        if self.numbers is not None:
            yield self.table(self.numbers)
            yield self.intervals(self.numbers)
            yield self.traces(self.numbers)
            if INFLATION[0] in self.numbers.table and np.isfinite(self.numbers.table[INFLATION[0]].to_numpy()).any():
                yield self.inflation(self.numbers)
            yield from self.checks()
        elif self.result.kept:
            yield _section("kept", "What was kept", "Instead of draws.", bullets(map(str, _names_of(self.result.kept))))
        if len(self.result.decisions):
            yield _folded("Decisions", bullets(self.result.decisions.made, class_="sentences"), is_open="")
        yield _folded("Settings and versions", _values(self.result.settings))
        yield element("footer", f"Made by sgmcmc {self.result.settings.get('versions', {}).get('sgmcmc', '')}.")

    def said(self) -> Markup:
        """The verdict, with what was found and what to do."""
        found, health = self.verdict, self.verdict.health
        parts: list[Any] = [element("h2", found.headline)]
        if self.numbers is not None and health.ok and self.n_draws >= LEAST_DRAWS:
            parts.append(element("p", _worth(self.numbers)))
        if health.findings:
            parts.append(element("ul", *map(_finding, health.findings), class_="findings"))
        return element("section", *parts, bullets(health.notes, class_="notes"), class_=f"verdict {found.level}", id="verdict")

    def table(self, numbers: Numbers) -> Markup:
        """The summary, with what is off marked."""
        headings, rows = cells(numbers.table)
        head = element("tr", element("th"), *(element("th", name, scope="col") for name in headings))
        flags = _flags(numbers, headings)
        body = [_row(*row) for row in zip(numbers.names, rows, flags, strict=True)]
        table = element("table", element("thead", head), element("tbody", *body))
        return _section("summary", "Summary", _which(numbers), element("div", table, class_="scroll", tabindex="0"))

    def intervals(self, numbers: Numbers) -> Markup:
        """Posterior intervals on both scales."""
        about = (
            "Medians with 50 % and 95 % intervals. First in posterior standard deviations from 0: those whose line leaves the "
        )
        about += "band are apart from 0. Then in their own units, numbers of one size together."
        standardised = [
            _picture(figures.standardised(numbers.some(part)), f"z{k}", "Intervals in standard deviations from 0")
            for k, part in enumerate(_parts(range(len(numbers.names))))
        ]
        places = [part for group in figures.by_scale(numbers) for part in _parts(group)]
        raw = [
            _picture(figures.raw(numbers.some(part)), f"i{k}", "Intervals in their own units") for k, part in enumerate(places)
        ]
        columns = (element("div", *column, class_="column") for column in (standardised, raw))
        return _section("intervals", "Intervals", about, element("div", *columns, class_="pictures"))

    def traces(self, numbers: Numbers) -> Markup:
        """How the chains moved, of the numbers that do worst."""
        worst = numbers.worst()[:TRACED]
        about = (
            "Traces, and how often each chain's draws fall into each twentieth of all draws: level lines are chains that agree."
        )
        if len(worst) < len(numbers.names):
            about += f" The {len(worst)} numbers that do worst."
        pictures = [
            _picture(figures.trace_and_ranks(numbers.draws[..., i]), f"t{k}", f"Trace of {numbers.names[i]}", numbers.names[i])
            for k, i in enumerate(worst)
        ]
        chains = len(numbers.draws)
        key = [_chain(k) for k in range(min(chains, figures.MOST_CHAINS))] if chains > 1 else []
        return _section(
            "traces", "Chains", about, element("ul", *key, class_="key"), element("div", *pictures, class_="pictures")
        )

    def inflation(self, numbers: Numbers) -> Markup:
        """By how much variances are off."""
        about = "The variance of the chains over that of the posterior, measured by the chains' own gradients, with two standard "
        about += f"errors to each side: 1 is right, the band is {OFF:.0%}."
        known = np.flatnonzero(np.isfinite(numbers.table[INFLATION[0]].to_numpy()))
        if len(known) < len(numbers.names):
            about += " Numbers of which it is not determined are left out."
        pictures = [
            _picture(figures.inflation(numbers.some(part)), f"v{k}", "Inflation of variances")
            for k, part in enumerate(_parts(known))
        ]
        return _section("inflation", "Bias of the variances", about, element("div", *pictures, class_="pictures"))

    def checks(self) -> Iterator[Markup]:
        """What was observed beside what the model simulates, where it can."""
        model = self.result.model
        if model is None or model.simulate is None or self.n_draws < LEAST_DRAWS:
            return
        columns = model.dataset if isinstance(model.dataset, Mapping) else {}
        heading, named = "What the model would have observed", [name for name in model.coords or {} if name in columns]
        try:
            found = check(self.result, named[:MOST_GROUPED], CHECKED_ROWS, CHECKED_DRAWS, seed=0, progress=False)
        except Exception as error:  # the rest of the page stands without what the user's own function could not do
            yield _section("checks", heading, f"Could not be looked at. {type(error).__name__}: {ADDRESS.sub('', str(error))}")
            return
        about = "What was observed (black) beside what the posterior simulates for the same rows (blue, 90 % of it)."
        drawn = [(outcome, draw) for outcome in found.outcomes.values() for draw in panels(outcome)]
        pictures = [
            _picture(figures.of_check(draw, outcome), f"c{k}", f"{draw.__name__} of {outcome.column}")
            for k, (outcome, draw) in enumerate(drawn)
        ]
        said = bullets((line.removeprefix("- ") for line in str(found).splitlines()), class_="sentences")
        yield _section("checks", heading, about, said, element("div", *pictures, class_="pictures"))


def _made(result: Result) -> int:
    """Draws per chain."""
    import jax

    return int(np.shape(jax.tree.leaves(result.draws)[0])[result.chained])


def _names_of(kept: Any) -> list[str]:
    return list(kept) if isinstance(kept, dict) else [type(kept).__name__]


def _worth(numbers: Numbers) -> str:
    ess = numbers.table["ess"].to_numpy()
    if not np.isfinite(ess).any():
        return ""
    least = int(np.nanargmin(ess))
    return f"The draws of {numbers.names[least]} are worth least: {ess[least]:,.0f} independent ones."


def _finding(finding: Finding) -> Markup:
    return element("li", element("b", finding.seen), element("span", finding.remedy, class_="do"))


def _which(numbers: Numbers) -> str:
    about = "ess and r_hat say how well the chains mix, inflation whether their variances are the posterior's."
    if numbers.complete:
        return about
    which = f"{len(numbers.names)} of {numbers.total:,} numbers: those of small parameters, then those that do worst"
    return f"{which}, worst first. {about}"


def _flags(numbers: Numbers, headings: Sequence[str]) -> np.ndarray:
    """Which cells of the table are beyond what is flagged."""
    table = numbers.table
    flags = np.zeros((len(table), len(headings)), bool)
    flags[:, headings.index("r_hat")] = table["r_hat"] > APART
    flags[:, headings.index("ess")] = table["ess"] < FEW
    if INFLATION[0] in headings:
        flags[:, headings.index(INFLATION[0])] = np.abs(table[INFLATION[0]] - 1) - 2 * table[INFLATION[1]] > OFF
    return flags


def _row(name: str, texts: Sequence[str], flags: Sequence[bool]) -> Markup:
    values = (element("td", text, class_="flag" if flag else None) for text, flag in zip(texts, flags, strict=True))
    return element("tr", element("th", name, scope="row", title=name), *values)


def _parts(places: Sequence[int] | np.ndarray) -> list[list[int]]:
    """Places in parts of nearly equal size that a figure has room for."""
    count = max(1, -(-len(places) // IN_A_FIGURE))
    return [part.tolist() for part in np.array_split(np.asarray(places), count)]


def _picture(figure: Figure, name: str, told: str, caption: str | None = None) -> Markup:
    named = [] if caption is None else [element("figcaption", caption)]
    return element("figure", *named, inline(figure, name, told), class_="named" if named else None)


def _chain(number: int) -> Markup:
    return element("li", element("i", style=f"background: var(--c{number})"), f"chain {number + 1}")


def _section(name: str, heading: str, about: str, *parts: Any) -> Markup:
    return element("section", element("h2", heading), element("p", about, class_="about"), *parts, id=name)


def _folded(heading: str, *parts: Any, is_open: str | None = None) -> Markup:
    return element("section", element("details", element("summary", heading), *parts, open=is_open))


def _values(settings: dict[str, Any]) -> Markup:
    versions = settings.get("versions", {})
    plain = {name: value for name, value in settings.items() if name != "versions"} | {
        f"version of {k}": v for k, v in versions.items()
    }
    rows = (
        element("tr", element("th", name, scope="row"), element("td", ADDRESS.sub("", _text(value))))
        for name, value in plain.items()
    )
    return element("table", element("tbody", *rows), class_="values")


def _text(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def _file(name: str) -> str:
    return files("sgmcmc.results.report").joinpath(name).read_text(encoding="utf-8")
