"""Summaries: whole on paper, exact in the table."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from sgmcmc.results.tables import COLUMNS, INFLATION, WIDTH, Summary, described


def table(names, scale=1.0, shift=0.0):
    draws = shift + scale * np.random.default_rng(0).standard_normal((2, 100, len(names)))
    made = pandas.DataFrame(described(draws, None), names, list(COLUMNS))
    return Summary(made.assign(**{INFLATION[0]: 1.02, INFLATION[1]: 0.013}))


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e6, 1e100])
@pytest.mark.parametrize("shift", [0.0, 12345.6])
def test_any_table_is_printed_whole(scale, shift):
    printed = str(table([f"coefficient of number {i}" for i in range(150)], scale, shift * min(scale, 1e200)))
    lines = printed.splitlines()
    assert len(lines) == 151
    assert len(set(map(len, lines))) == 1
    assert all(name in lines[0] for name in (*COLUMNS, INFLATION[0]))
    if 1e-6 < scale < 1e5:
        assert len(lines[0]) <= WIDTH
        assert "1.02 ± 0.01" in lines[1]


def test_digits_are_those_that_the_standard_deviation_knows():
    one = Summary(pandas.DataFrame([[-1234.56789, 0.0123456, 1.23e-4, *[-1234.6] * 3, 4321.0, 1.0004]], ["a"], list(COLUMNS)))
    assert str(one).splitlines()[1].split() == ["a", "-1234.5679", "0.0123", "0.00012", *["-1234.6000"] * 3, "4,321", "1.000"]
    assert one["mean"].iloc[0] == -1234.56789
    still = Summary(one.assign(sd=0.0, r_hat=np.nan))
    assert "-1234.57" in str(still)
    assert "–" in str(still)


def test_long_names_lose_their_middle_last():
    short, long = str(table(["beta"])), str(table(["a very long name of one coefficient among many others, the first"]))
    assert len(short.splitlines()[1]) < len(long.splitlines()[1]) <= WIDTH
    assert "…" in long
    assert long.splitlines()[1].split("  ")[0].endswith("first")


def test_rows_of_a_summary_are_one_and_other_tables_are_not():
    made = table(["a", "b", "c"])
    assert isinstance(made.loc[["a"]], Summary)
    assert isinstance(made.sort_values("ess").head(2), Summary)
    assert isinstance(made.assign(true=1.5), Summary)
    assert "1.5" in str(made.assign(true=1.5))
    assert type(made[["mean", "sd"]]) is pandas.DataFrame
    assert type(made.T) is pandas.DataFrame
    assert made._repr_html_().count("<tr>") == 4
