"""Models that come in other forms than two functions: NumPyro's, and regressions by formula."""
