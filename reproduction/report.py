"""From what the experiments found to a page of Markdown."""

from __future__ import annotations

from collections import Counter
from typing import Any

from reproduction.claims import Claim, section_2, section_6_1, section_6_2, section_6_3
from reproduction.experiment import load

CLAIMS = {
    "stan": section_2.claims,
    "gaussian-mixture": section_6_1.claims,
    "logistic-regression": section_6_2.claims,
    "neural-network": section_6_3.claims,
}

HEAD = """# The article's experiments, run again

Made by `python -m reproduction all{quick}`: the experiments of sections 2 and 6 of the article on the R package, with its
settings, its figures drawn again, and each of its checkable sentences judged by a measurement. Settings that it does not give
are ours and marked so; what we put beside its methods (`sghmc` with the corrected order of updates, our own choice of centre
and step) is labelled. Random numbers are not R's, so runs agree in law, not in digits.

Ran with sgmcmc {sgmcmc}, JAX {jax}, Python {python} on {cores} cores ({machine}), in {minutes:.0f} minutes of computing.
"""

LEFT_OUT = """
### Not in the table

Sentences of these sections that no measurement of ours decides: definitions and notation (the posterior, the Metropolis-
Hastings and MALA updates, the models); what other software contains or requires (BUGS and JAGS, the download of datasets);
advice (when to use which sampler); references to other papers; and what the figures' captions name. The article says that
JAGS needs conjugate priors; JAGS has slice samplers for the others, so we list that sentence here and not as a measurement.
"""


def render(found: list[dict[str, Any]]) -> str:
    """The report of some experiments: a pure function of their JSON files."""
    quick = any(one["quick"] for one in found)
    seconds = sum(one["seconds"] for one in found)
    parts = [HEAD.format(**found[0]["software"], minutes=seconds / 60, quick=" --quick" if quick else "")]
    if quick:
        parts.append("\n**Shortened chains (`--quick`): the verdicts below are not about the article's settings.**\n")
    claims = [claim for one in found for claim in CLAIMS[one["experiment"]](one["numbers"])]
    parts.append(_summary(claims))
    for one in found:
        parts.append(_experiment(one))
    parts.append("\n## The article's claims\n\n")
    parts += [_table("the article says", [claim for claim in claims if not claim.ours]), LEFT_OUT]
    parts += ["\n## What we add\n\n", _table("we say, or asked", [claim for claim in claims if claim.ours])]
    return "".join(parts)


def _table(head: str, claims: list[Claim]) -> str:
    rows = [["section", head, "decided by", "seen", "verdict"]]
    rows += [[c.section, c.says, c.decided_by, c.seen, _bold(c.verdict)] for c in sorted(claims, key=lambda c: c.section)]
    return markdown_table(rows)


def _summary(claims: list[Claim]) -> str:
    claims = [claim for claim in claims if not claim.ours]
    count = Counter(claim.verdict.partition(":")[0] for claim in claims)
    told = ", ".join(
        f"{count[kind]} {text}" for kind, text in (("holds", "hold"), ("does not hold", "do not"), ("differs", "differ"))
    )
    return f"\nOf {len(claims)} claims of the article, {told}: [the table](#the-articles-claims).\n"


def _experiment(one: dict[str, Any]) -> str:
    experiment = load(one["experiment"])
    parts = [f"\n## {one['title']}\n"]
    parts.append(experiment.REMARKS)
    parts += [f"\n![{experiment.FIGURES[name]}]({name}.png)\n" for name in one["figures"]]
    parts += ["\n", markdown_table(experiment.table(one["numbers"]))]
    settings = [["setting", "value", "whose"]]
    for row in one["settings"]:
        quick = one["quick"] and row["quick"] is not None
        settings.append([row["setting"], _value(row["quick"] if quick else row["value"]), _whose(row, quick)])
    parts += ["\nSettings:\n\n", markdown_table(settings)]
    return "".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _whose(row: dict[str, Any], quick: bool) -> str:
    if quick:
        return "ours, for `--quick`"
    return "the article" if row["from"] == "paper" else f"ours: {row['why']}"


def _bold(verdict: str) -> str:
    kind, colon, because = verdict.partition(":")
    return f"**{kind}**{colon}{because}"


def markdown_table(rows: list[list[str]]) -> str:
    """Rows of text, the first of them the head."""
    head, *body = [[cell.replace("|", "\\\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
