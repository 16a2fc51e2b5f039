"""A posterior with two modes: which of them do chains of `sgld` visit, and which do those that swap with hotter copies?

A mixture of two normals in the plane with unknown means (section 6.1 of the article on the R package). Swapping theta1 and
theta2 changes nothing, so the posterior of theta1 is the same on both sides and a chain that explores it all spends half its
time on each. The components are the article's, so close together that the modes touch, and two that are further apart. Those
take replica exchange: copies at nine temperatures, of which the hottest crosses freely, and neighbours that swap places.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter

import sgmcmc
from sgmcmc.algorithms import OBABO, ReplicaExchange

N_COPIES = 9
BLUE, ORANGE = "#0072B2", "#E69F00"  # told apart by colour-blind readers too

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="shorter chains: seconds")
parser.add_argument("--out", default="gaussian_mixture.png", help="where to write the picture")
options = parser.parse_args()
n_iters = 4_000 if options.quick else 50_000


def log_lik(params, batch):
    first = -0.5 * ((batch["X"] - params["theta1"]) ** 2).sum(axis=1)
    second = -0.5 * ((batch["X"] - params["theta2"]) ** 2).sum(axis=1)
    return jnp.logaddexp(first, second)  # one value per row, constants dropped


def log_prior(params):  # N(0, 10 I) for each
    return -0.5 * ((params["theta1"] ** 2).sum() + (params["theta2"] ** 2).sum()) / 10


def exact_density(X, edges, n_proposals):
    """Of theta1, on a grid, by importance sampling: proposals have a normal middle and a uniform distance of the two means."""
    rng = np.random.default_rng(1)
    scale = 1.5 * np.sqrt(np.linalg.eigvalsh(np.cov(X.T))[-1] / len(X))
    noise, half = rng.standard_normal((n_proposals, 2)), rng.uniform(-0.9, 0.9, (n_proposals, 2))
    proposals = {"theta1": X.mean(0) + scale * noise + half, "theta2": X.mean(0) + scale * noise - half}
    log_posterior = jax.jit(lambda p: jax.lax.map(lambda q: log_lik(q, {"X": X}).sum() + log_prior(q), p, batch_size=500))
    log_weight = np.asarray(log_posterior(proposals)) + 0.5 * (noise**2).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    both = np.concatenate([proposals["theta1"], proposals["theta2"]])  # theta2 has the same law
    return gaussian_filter(np.histogram2d(*both.T, bins=edges, weights=np.tile(weight, 2))[0], 1.0)


def level(density, share):
    """The height above which the density has `share` of its mass."""
    heights = np.sort(density.ravel())[::-1]
    return heights[np.searchsorted(np.cumsum(heights), share * heights.sum())]


figure = Figure(figsize=(10, 5.2), layout="constrained")
panels = figure.subplots(1, 2)
shares, crossings = {}, {}
for axes, distance in zip(panels, (0.1, 1.0), strict=True):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((1_000, 2)) + distance * rng.integers(0, 2, (1_000, 1))  # means (0, 0) and (distance, distance)

    # Two chains start with theta1 on the left and theta2 on the right, two the other way round.
    corner = X.mean(0) + 0.5 * np.array([[-1, -1], [-1, -1], [1, 1], [1, 1]])
    params = {"theta1": X.mean(0), "theta2": X.mean(0)}
    sampler = sgmcmc.sgld_setup(log_lik, {"X": X}, params, 5e-4, log_prior=log_prior, minibatch_size=100, rows="window")
    state = sampler.replace(sampler.init(seed=2, n_chains=4), {"theta1": corner, "theta2": corner[::-1]})
    out = sampler.run(state, n_iters, burn_in=500)

    right = out["theta1"][..., 0] > out["theta2"][..., 0]  # is theta1 the mean on the right?
    shares[distance], crossings[distance] = right.mean(axis=1), np.abs(np.diff(right.astype(int))).sum(axis=1)
    print(f"\nmeans ({distance:g}, {distance:g}) apart: how often theta1 is the mean on the right (exactly 50%)")
    for chain, (share, count) in enumerate(zip(shares[distance], crossings[distance], strict=True)):
        began = "right" if chain > 1 else "left"
        print(f"  chain {chain + 1} from the {began:5s}  {share:4.0%} of {n_iters:,} iterations, {count:,} crossings")
    print(f"  all four           {right.mean():4.0%}, r_hat of theta1 {out.summary()['r_hat'].iloc[:2].max():.2f}")
    if (crossings[distance] == 0).any():
        print("  No chain has seen the other mode. Half and half is how they were started, not something they found; had all")
        print("  four begun on one side, r_hat would be near 1 and nothing here would have warned you.")

    reach = 0.6 if distance < 1 else 0.9
    edges = [np.linspace(centre - reach, centre + reach, 50) for centre in X.mean(0)]
    density = exact_density(X.astype(np.float32), edges, 50_000 if options.quick else 400_000)
    middles = [(x[1:] + x[:-1]) / 2 for x in edges]
    for chains, colour, began in ((slice(0, 2), BLUE, "left"), (slice(2, 4), ORANGE, "right")):
        draws = out["theta1"][chains].reshape(-1, 2)
        draws = draws[:: max(1, len(draws) // 1_500)]
        axes.plot(*draws.T, ".", ms=3, alpha=0.5, color=colour, label=f"two chains from the {began}")
    axes.contour(*middles, density.T, [level(density, 0.95), level(density, 0.5)], colors="black", linestyles=["--", "-"])
    axes.plot([], [], "k-", label="exact, 50 % inside")
    axes.plot([], [], "k--", label="exact, 95 % inside")
    axes.set(xlabel="theta1[0]", ylabel="theta1[1]", aspect="equal", xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]])
    axes.set_title(f"Means ({distance:g}, {distance:g}) apart: {crossings[distance].sum():,} crossings")
    axes.spines[["top", "right"]].set_visible(False)
print(f"\nmeans (1, 1) apart, with copies at {N_COPIES} temperatures:")
start = {"theta1": corner[0], "theta2": corner[-1]}  # all four on the left
hot = ReplicaExchange(tuple(1.6 ** np.arange(N_COPIES)), OBABO(alpha=0.2), every=2)
sampler = sgmcmc.sampler_setup(
    log_lik, {"X": X}, start, 5e-4, log_prior=log_prior, dynamics=hot, minibatch_size=500, rows="window", name="replica exchange"
)
swapped = sampler.run(sampler.init(seed=2, n_chains=4), n_iters, burn_in=500)
right = swapped["theta1"][..., 0] > swapped["theta2"][..., 0]
exchanged, exchanges = right.mean(axis=1), np.abs(np.diff(right.astype(int))).sum(axis=1)
print(f"  all four from the left  {', '.join(f'{share:.0%}' for share in exchanged)}, {exchanges.sum():,} crossings")
handles, labels = panels[0].get_legend_handles_labels()
for line in figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, markerscale=4).get_lines():
    line.set_alpha(1)
figure.suptitle("One mean of a mixture of two normals: draws of sgld and the exact posterior")
figure.savefig(options.out, dpi=110)
print(f"\npicture: {options.out}")
