"""The mean vector of a multivariate normal: draws of `sgldcv` and `sgld` beside the exact posterior.

x ~ N(theta, Sigma) with Sigma known and theta ~ N(0, 10 I): the posterior is normal, with a mean and a covariance in closed form.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import sgmcmc

BLUE, ORANGE = "#0072B2", "#E69F00"  # told apart by colour-blind readers too

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="fewer rows and shorter chains: seconds")
parser.add_argument("--out", default="multivariate_gaussian.png", help="where to write the picture")
options = parser.parse_args()

n_rows, n_iters = (20_000, 4_000) if options.quick else (100_000, 20_000)
Sigma = np.array([[1.0, 0.8], [0.8, 2.0]])
X = np.random.default_rng(1).multivariate_normal([0.5, -1.0], Sigma, n_rows)
precision = np.linalg.inv(Sigma)


def log_lik(params, batch):
    residual = batch["X"] - params["theta"]
    return -0.5 * (residual @ precision * residual).sum(axis=1)  # one value per row


def log_prior(params):
    return -0.5 * (params["theta"] ** 2).sum() / 10


# The exact posterior: precisions add up.
exact_covariance = np.linalg.inv(n_rows * precision + np.eye(2) / 10)
exact_mean = exact_covariance @ (precision @ X.sum(axis=0))
exact_sd = np.sqrt(np.diag(exact_covariance))

# A fifth of the smallest posterior variance in any direction: with exact gradients no variance is then overstated by more
# than 5 %. Both samplers get it. Control variates make the gradient of this model exact; plain minibatches do not.
stepsize = 0.2 * np.linalg.eigvalsh(exact_covariance)[0]
arguments = (log_lik, {"X": X}, {"theta": X[:100].mean(axis=0)}, stepsize)
common = {"log_prior": log_prior, "minibatch_size": 500, "rows": "window", "n_chains": 4, "seed": 1}
common |= {"burn_in": 500, "n_iters": n_iters}
results = {"sgldcv": sgmcmc.sgldcv(*arguments, **common), "sgld": sgmcmc.sgld(*arguments, **common)}

# z is the error of the mean in standard errors: between -2 and 2 about 95 times in 100.
tables = {}
for name, out in results.items():
    table = out.summary()[["mean", "sd", "ess"]]
    table.insert(1, "exact mean", exact_mean)
    table.insert(3, "exact sd", exact_sd)
    table["sd ratio"] = table["sd"] / exact_sd
    table["z"] = (table["mean"] - exact_mean) / (table["sd"] / np.sqrt(table["ess"]))
    print(f"\n{name}\n{table.round({'mean': 5, 'exact mean': 5, 'sd': 5, 'exact sd': 5, 'ess': 0, 'sd ratio': 3, 'z': 2})}")
    tables[name] = table

# The share of draws inside the ellipse that holds 95 % of the exact posterior. A chi-square of 2 degrees of freedom has a
# closed quantile: -2 log(1 - p).
print()
inside = {}
for name, out in results.items():
    away = out["theta"] - exact_mean
    squared_distance = np.einsum("cdi,ij,cdj->cd", away, np.linalg.inv(exact_covariance), away)
    inside[name] = (squared_distance < -2 * np.log(0.05)).mean()
    print(f"{name}: {inside[name]:.1%} of the draws inside the exact 95 % ellipse")

figure = Figure(figsize=(10, 4.8), layout="constrained")
panels = figure.subplots(1, 2, sharex=True, sharey=True)
angle = np.linspace(0, 2 * np.pi, 200)
circle = np.linalg.cholesky(exact_covariance) @ np.stack([np.cos(angle), np.sin(angle)])
for axes, (name, out), colour in zip(panels, results.items(), (BLUE, ORANGE), strict=True):
    draws = out["theta"].reshape(-1, 2)
    draws = draws[:: max(1, len(draws) // 4_000)]
    axes.plot(*draws.T, ".", ms=2.5, alpha=0.5, color=colour, label=f"draws of {name}", rasterized=True)
    for share, style in ((0.5, "-"), (0.95, "--")):
        ellipse = exact_mean[:, None] + np.sqrt(-2 * np.log(1 - share)) * circle
        axes.plot(*ellipse, style, lw=1.8, color="black", label=f"exact, {share:.0%} inside")
    axes.set(title=f"{name}: {inside[name]:.0%} inside the 95 % ellipse", xlabel="theta[0]")
    axes.spines[["top", "right"]].set_visible(False)
    for line in axes.legend(loc="upper left", markerscale=4, framealpha=0.9, edgecolor="none").get_lines():
        line.set_alpha(1)
panels[0].set_ylabel("theta[1]")
figure.suptitle(f"Mean of a bivariate normal, {n_rows:,} rows, minibatches of 500, one step size for both")
figure.savefig(options.out, dpi=110)
print(f"picture: {options.out}")
