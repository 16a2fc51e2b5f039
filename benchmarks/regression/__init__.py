"""`glm` family by family: its maximum of the likelihood beside statsmodels, its posterior beside NUTS on the same design."""
