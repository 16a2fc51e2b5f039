"""Models that come in other forms than two functions: NumPyro's, regressions by formula, estimators of scikit-learn."""
