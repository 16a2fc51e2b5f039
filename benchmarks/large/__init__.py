"""Rows on disk beside rows in memory, and `sample` on more rows than fit."""
