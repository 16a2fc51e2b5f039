"""Regressions by formula: from a frame with strings, dates and missing values to draws with names, and to predictions."""
