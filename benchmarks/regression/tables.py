"""The tables of the page, from what was measured."""

from __future__ import annotations

from typing import Any

Line = tuple[Any, ...]

MAXIMA = ("family", "rows", "numbers", "farthest apart, standard errors", "seconds", "statsmodels")
POSTERIORS = ("family", "rows", "means, posterior sds", "sds", "seconds", "NUTS", "checks")
INSURANCE = ("rows", "numbers", "means, posterior sds", "sds", "smallest ESS", "seconds of the fit", "to report and predictions",
             "engine", "checks")  # fmt: skip
BESIDE = ("beside", "rows", "seconds", "`glm`", "farthest apart, posterior sds")
SCALE = ("frame", "rows", "reads of the frame", "seconds", "memory at most, GB", "engine", "truth, sds away", "size, MB")


def tables(kept: dict[str, Any]) -> str:
    """All of them, without those of which nothing was measured."""
    found = {
        MAXIMA: [_maximum(one) for one in _of(kept, "maxima")],
        POSTERIORS: [_posterior(one) for one in _of(kept, "posterior")],
        INSURANCE: [_insurance(one) for one in _of(kept, "insurance")],
        BESIDE: [_beside(name, one) for name, one in kept.items() if name.startswith("beside")],
        SCALE: [*map(_levels, _of(kept, "levels")), *map(_disk, _of(kept, "disk"))],
    }
    largest = {who: max(_named(kept, who), key=lambda one: one["rows"]) for who in ("bambi", "scikit-learn") if _named(kept, who)}
    each = [table(_heads(who, one), _coefficients(one)) for who, one in largest.items()]
    return "\n".join([*(table(heads, lines) for heads, lines in found.items() if lines), *each])


def _named(kept: dict[str, Any], who: str) -> list[dict[str, Any]]:
    """Comparisons that came to coefficients."""
    return [one for one in _of(kept, f"beside {who}") if "names" in one]


def _heads(who: str, one: dict[str, Any]) -> Line:
    return f"coefficient, {one['rows']:,} rows", "`glm`, means", who


def _coefficients(one: dict[str, Any]) -> list[Line]:
    """Side by side; bambi's intercept is one at the means of the columns."""
    lines = zip(one["names"], one["ours"], one["theirs"], strict=True)
    return [(f"`{name}`", f"{ours:.4f}", f"{theirs:.4f}") for name, ours, theirs in lines if name != "Intercept"]


def _of(kept: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one for name, one in kept.items() if name.startswith(kind)]


def _checks(one: dict[str, Any], key: str = "ok") -> str:
    return "passed" if one[key] else "see health()"


def _maximum(one: dict[str, Any]) -> Line:
    return (one["family"], f"{one['rows']:,}", one["numbers"], f"{one['apart']:.0e}", f"{one['seconds']:.0f}",
            f"{one['statsmodels']:.0f}")  # fmt: skip


def _posterior(one: dict[str, Any]) -> Line:
    return (one["family"], f"{one['rows']:,}", f"{one['means']:.3f}", f"{one['sds']:.1%}", f"{one['sgmcmc']:.0f}",
            f"{one['nuts']:.0f}", _checks(one, "sgmcmc ok"))  # fmt: skip


def _insurance(one: dict[str, Any]) -> Line:
    return (f"{one['rows']:,}", one["numbers"], f"{one['means']:.3f}", f"{one['sds']:.1%}", f"{one['ess']:.0f}",
            f"{one['fit']:.0f}", f"{one['all']:.0f}", one["engine"], _checks(one))  # fmt: skip


def _beside(name: str, one: dict[str, Any]) -> Line:
    who = name.removeprefix("beside ").partition(",")[0]
    if not one["ended"]:
        return who, f"{one['rows']:,}", f"not done after {one['seconds']:.0f}", "", ""
    return who, f"{one['rows']:,}", f"{one['seconds']:.1f}", f"{one['glm']:.0f}", f"{one['apart']:.2f}"


def _levels(one: dict[str, Any]) -> Line:
    size = f"{one['bytes'] / 1e6:.0f}, dense {one['dense'] / 1e6:,.0f}"
    return f"{one['levels']:,} levels", *_scale(one), size


def _disk(one: dict[str, Any]) -> Line:
    return "Parquet on disk", *_scale(one), f"{one['file'] / 1e6:.0f}, as rows {one['folder'] / 1e6:.0f}"


def _scale(one: dict[str, Any]) -> Line:
    return (f"{one['rows']:,}", one["passes"], f"{one['seconds']:.0f}", f"{one['memory'] / 1e9:.1f}", one["engine"],
            f"{one['away']:.1f}")  # fmt: skip


def table(heads: tuple[str, ...], lines: list[Any]) -> str:
    """In Markdown."""
    every = [heads, ["---", *["---:"] * (len(heads) - 1)], *lines]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in every)
