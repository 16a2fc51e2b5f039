"""Simulation-based calibration of `sample`: over draws from the prior, the truth has a uniform rank among posterior draws."""
