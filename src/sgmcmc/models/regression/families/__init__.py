"""Families of distributions for what is observed: a file for each kind of outcome."""

import copyreg
import difflib

from sgmcmc.core.errors import InputError, describe
from sgmcmc.models.regression.families.base import Family
from sgmcmc.models.regression.families.classes import CATEGORICAL, ORDINAL
from sgmcmc.models.regression.families.counts import NEGATIVE_BINOMIAL, POISSON, ZERO_INFLATED_POISSON
from sgmcmc.models.regression.families.positive import EXPONENTIAL, GAMMA, WEIBULL
from sgmcmc.models.regression.families.real import GAUSSIAN, STUDENT
from sgmcmc.models.regression.families.shares import BERNOULLI, BETA, BINOMIAL

__all__ = ["FAMILIES", "Family", "find_family"]

_ALL = (
    GAUSSIAN, STUDENT, BERNOULLI, BINOMIAL, CATEGORICAL, ORDINAL, POISSON, NEGATIVE_BINOMIAL, ZERO_INFLATED_POISSON, GAMMA, BETA,
    WEIBULL, EXPONENTIAL,
)  # fmt: skip

FAMILIES = {family.name: family for family in _ALL}


ELSEWHERE = {
    "normal": "gaussian", "t": "student", "studentt": "student", "logistic": "bernoulli", "logit": "bernoulli",
    "cumulative": "ordinal", "multinomial": "categorical", "softmax": "categorical", "negativebinomial": "negative binomial",
    "negbinomial": "negative binomial", "zip": "zero inflated poisson", "survival": "weibull",
}  # fmt: skip
"""What families are called in other packages."""


def _named(name: str) -> Family:
    return FAMILIES[name]


copyreg.pickle(Family, lambda family: (_named, (family.name,)))  # by name: what a family is made of are functions


def find_family(name: object, link: object = None) -> tuple[Family, str]:
    """A family and its link by their names."""
    family = FAMILIES.get(name.replace("-", " ").replace("_", " ")) if isinstance(name, str) else None
    if family is None:
        known = [*FAMILIES, *ELSEWHERE]
        close = difflib.get_close_matches(name.lower().replace("_", " "), known, 1) if isinstance(name, str) else []
        guess = f"; did you mean {ELSEWHERE.get(close[0], close[0])!r}" if close else ""
        raise InputError(f"family is {describe(name)}{guess}; expected one of {', '.join(map(repr, FAMILIES))}")
    if link is None:
        return family, family.links[0]
    if link not in family.links:
        raise InputError(f"link is {describe(link)}; the family {family.name!r} has {', '.join(map(repr, family.links))}")
    return family, str(link)
