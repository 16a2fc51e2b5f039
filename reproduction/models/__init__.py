"""The models of the article, each a plain `log_lik` and `log_prior` to copy and change.

>>> import numpy as np, sgmcmc
>>> from reproduction.models import normal_mean
>>> x = np.random.default_rng(1).normal(0.3, 1.0, 1000)
>>> out = sgmcmc.sgldcv(normal_mean.log_lik, {"x": x}, {"theta": 0.0}, 2e-4, log_prior=normal_mean.log_prior,
...                     minibatch_size=100, n_iters=2000, seed=1)
>>> mean, variance = normal_mean.exact_posterior(x)
>>> bool(abs(out["theta"].mean() - mean) < 4 * np.sqrt(variance / 100))
True
"""
