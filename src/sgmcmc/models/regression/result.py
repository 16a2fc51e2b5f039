"""The result of a regression: draws by name, and what can be said with a frame of rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from sgmcmc.core.checks import Progress
from sgmcmc.models.regression import effects, predictions
from sgmcmc.models.regression.core import Core
from sgmcmc.models.regression.design import Design
from sgmcmc.models.regression.report import reported, reported_names
from sgmcmc.results.result import Result
from sgmcmc.rows.table import check_dataset

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from matplotlib.figure import Figure

    from sgmcmc.results.after.checking import Check
    from sgmcmc.results.after.densities import LogScore


@dataclass(frozen=True)
class Regression(Result):
    """The result of `glm`: a `Result` whose draws are by term, on the scale of the frame's columns.

    Attributes:
        inner: the result of `sample`, in standardised variables: what its `model` works with.
        core: family, link, terms and groups.
        design: how rows of a frame become rows of the model.
        told: priors as they were told.

    >>> import numpy as np, sgmcmc
    >>> rng = np.random.default_rng(0)
    >>> frame = {"dose": rng.uniform(0, 1, 500), "arm": rng.choice(["a", "b"], 500)}
    >>> frame["change"] = 2 + 3 * frame["dose"] - (frame["arm"] == "b") + rng.normal(0, 0.5, 500)
    >>> fit = sgmcmc.glm("change ~ dose + arm", frame, seed=1, progress=False)
    >>> fit.predict({"dose": [1.0, 1.0], "arm": ["a", "b"]}).round(0).tolist()
    [5.0, 4.0]
    >>> fit.compare_levels("arm")["mean"].round(0).to_dict()
    {'a': 0.0, 'b': -1.0}
    """

    inner: Result = field(kw_only=True, repr=False)
    core: Core = field(kw_only=True, repr=False)
    design: Design = field(kw_only=True, repr=False)
    told: Mapping[str, Any] = field(kw_only=True, repr=False, default_factory=dict)

    @classmethod
    def of(cls, inner: Result, core: Core, design: Design, told: Mapping[str, Any] | None = None) -> Regression:
        """From the result of `sample`."""
        draws, names = reported(core, inner.draws)
        called = reported_names(core)
        pairs = inner.pairs and replace(inner.pairs, names=[called.get(name, name) for name in inner.pairs.names])
        fields_of = {one.name: getattr(inner, one.name) for one in fields(Result)}
        fields_of |= {"draws": draws, "names": names, "pairs": pairs}
        return cls(**fields_of, inner=inner, core=core, design=design, told=told or {})

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: as for `save`, without the functions of the model, and with 2,000 rows of the frame at most."""
        return super().__getstate__() | {"design": self.design.kept()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With its model again, which follows from the design, the terms and the priors."""
        design, core = state["design"], state["core"]
        model = core.model(design.of_typed(design.facts.sample), core.priors(state["told"]))
        self.__dict__.update(state, model=model, inner=replace(state["inner"], model=model))

    def __repr__(self) -> str:
        return f"<Regression {self.design.response.parsed.text!r}, family {self.core.family.name!r}: {', '.join(self)}>"

    @property
    def in_model(self) -> Result:
        return self.inner

    @property
    def has_its_rows(self) -> bool:
        """Whether the model has all rows of the fit; read from a file, it has 2,000 of them at most."""
        model = self.inner.model
        return model is not None and check_dataset(model.dataset).n_rows == self.settings.get("n_rows")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the regression into one file: as of `Result`, with formula, levels, transforms and priors, so that
        `sgmcmc.load(path)` gives it back in any process, and predicts for new frames bit for bit.

        Of the frame's rows it holds 2,000 at most, for effects, checks and the report. Nothing in the file is code.

        >>> import tempfile, numpy as np, sgmcmc
        >>> frame = {"dose": np.linspace(0, 1, 500)}
        >>> frame["change"] = 2 + 3 * frame["dose"] + np.random.default_rng(0).normal(0, 0.5, 500)
        >>> fit = sgmcmc.glm("change ~ poly(dose, 2)", frame, seed=1, progress=False)
        >>> fit.save(path := f"{tempfile.mkdtemp()}/fit.sgmcmc")
        >>> new = {"dose": [0.2, 0.7]}
        >>> bool((sgmcmc.load(path).predict(new, progress=False) == fit.predict(new, progress=False)).all())
        True
        """
        from sgmcmc.models.regression.written import written
        from sgmcmc.results.after.saving import save

        save(self.inner, path, written(self.design, self.core, self.told))

    def predict(  # pyright: ignore[reportIncompatibleMethodOverride]: frames in place of datasets
        self, new: Any = None, kind: str = "mean", *, of: str = "outcome", level: float = 0.9, draws: int = 500, seed: Any = 0,
        progress: Progress = True,
    ) -> Any:  # fmt: skip
        """What is to be expected in new rows: one value for each row of a frame.

        `kind="mean"` is the expected outcome, averaged over the posterior; of classes, the probability of each. `"draws"` are
        outcomes that the model simulates, one for each of its draws (draws first, then rows), and an `"interval"` holds so much
        of them: both have the spread of the posterior and that of single outcomes. With `of="mean"` they are of the expected
        outcome, and have the spread of the posterior alone. Levels of a grouping that the fit has not seen have effects drawn
        from the population; of other columns they are refused by name.

        Args:
            new: a frame of any kind that `glm` takes, with the columns of the right-hand side. None: the rows of the fit.
            kind: `"mean"`, `"draws"` or `"interval"`.
            of: `"outcome"` or `"mean"`: what draws and intervals are of.
            level: how much of the draws the interval holds.
            draws: so many of the draws.
            seed: of simulated outcomes and new levels.
            progress: False shows no bar.
        """
        return predictions.predict(self, new, kind, of, {"level": level, "draws": draws, "seed": seed, "progress": progress})

    def posterior_predictive(  # pyright: ignore[reportIncompatibleMethodOverride]: frames in place of datasets
        self, new: Any = None, *, draws: int = 500, seed: Any = 0, progress: Progress = True
    ) -> dict[str, np.ndarray]:
        """Outcomes as the model would make them, by column: `{"y": ...}`, draws first, then rows."""
        return {"y": self.predict(new, "draws", draws=draws, seed=seed, progress=progress)}

    def log_score(  # pyright: ignore[reportIncompatibleMethodOverride]: frames in place of datasets
        self, new: Any, *, draws: int = 1000, progress: Progress = True
    ) -> LogScore:
        """How well the rows of a frame are foreseen: as of `Result`, for a frame that has the outcome."""
        return self.inner.log_score(self.design.dataset(new), draws=draws, progress=progress)

    def check(
        self, *, by: str | Sequence[str] = (), rows: int = 10_000, draws: int = 400, seed: int = 0, progress: Progress = True
    ) -> Check:
        """What was observed beside what the model simulates for the same rows: as of `Result`.

        Args:
            by: columns of the right-hand side: means of residuals at each of their levels, or in tenths; of frames with more than
                200,000 rows so many are drawn from, of a regression from a file the 2,000 that it has.
            rows: so many rows, drawn at random.
            draws: so many draws of the posterior, spread evenly.
            seed: of the rows and of the simulated observations.
            progress: False shows no bar.
        """
        from sgmcmc.results.after.checking import check

        columns = (by,) if isinstance(by, str) else tuple(by)
        if not columns:
            return super().check(rows=rows, draws=draws, seed=seed, progress=progress)
        return check(*effects.with_columns(self, columns), rows, draws, seed, progress)

    def compare_levels(self, column: str, levels: Sequence[Any] | None = None, *, draws: int = 500) -> pandas.DataFrame:
        """What if all rows had this level: the expected outcome at each, and its difference from the first (`mean`, `sd`, ...).

        Averaged over 2,000 rows of the frame at most, everything else as it is in them.

        Args:
            column: a column of levels, or of 0 and 1.
            levels: those to compare, the first as the baseline; all when left out.
            draws: so many of the draws.
        """
        return effects.compared(self, column, levels, draws)

    def average_effects(self, columns: Sequence[str] | None = None, *, draws: int = 500) -> pandas.DataFrame:
        """How the expected outcome changes with each column, averaged over rows: slopes of numbers, differences of levels.

        Args:
            columns: those that are asked for; all of the right-hand side that have few levels when left out.
            draws: so many of the draws.
        """
        import pandas

        return pandas.concat([effects.slopes(self, column, draws) for column in columns or effects.with_effects(self)])

    def dependence(self, column: str, *, points: int = 20, level: float = 0.9, draws: int = 500) -> pandas.DataFrame:
        """The expected outcome along a column, everything else as it is in the frame's rows: partial dependence.

        Args:
            column: of numbers or levels.
            points: values of a number at which to look, from its 2% to its 98% quantile.
            level: of the interval, which has the spread of the posterior alone.
            draws: so many of the draws.
        """
        return effects.dependence(self, column, points, level, draws)

    def plot_dependence(self, *columns: str, level: float = 0.9, draws: int = 500) -> Figure:
        """A picture of `dependence`, a panel for each column."""
        from sgmcmc.models.regression.pictures import dependences

        return dependences(self, columns or tuple(effects.with_effects(self)[:6]), level, draws)

    def plot_groups(self, name: str | None = None, *, part: str = "1", most: int = 60) -> Figure:
        """Effects of groups with intervals, beside what each group's rows alone would say: how far they were drawn together.

        Args:
            name: the grouping; the only one when left out.
            part: what varies, `"1"` for the intercept.
            most: so many groups, those with most rows.
        """
        from sgmcmc.models.regression.pictures import shrinkage

        return shrinkage(self, name, part, most)
