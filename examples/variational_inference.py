"""What is left unknown of a decay after thirty noisy counts: a posterior, fitted by plain draws.

The rate and the height of the decay have a posterior that bends. A Gaussian is fitted to it by
gradient ascent on the evidence bound, whose expectation is a mean over random draws. They are made
inside of the function, by NumPy's generator: each step of the ascent draws anew.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tapegrad import value_and_grad

TIMES = np.linspace(0.0, 5.0, 30)
TRUTH = np.log([0.9, 8.0])  # logarithms of the rate and of the height


def expected(theta):
    """Counts at the times; `theta` holds logarithms, in its last axis."""
    rate, height = np.exp(theta[..., 0]), np.exp(theta[..., 1])
    return height[..., None] * np.exp(-rate[..., None] * TIMES)


def log_joint(theta, counts):
    """Of the parameters and of Poisson counts, up to a constant."""
    mean = expected(theta) + 0.3  # the background
    prior = -0.5 * np.sum((theta / 2.0) ** 2, axis=-1)
    return prior + np.sum(counts * np.log(mean) - mean, axis=-1)


def guide(w, z):
    """A Gaussian's parameters: its mean, and its covariance's Cholesky factor; and its draws."""
    factor = np.zeros((2, 2))
    factor[0, 0], factor[1, 1] = np.exp(w[2]), np.exp(w[3])
    factor[1, 0] = w[4]
    return w[:2] + z @ factor.T, factor


def evidence_bound(w, counts, rng, draws=16):
    """E_q[log p(theta, counts) - log q(theta)], a mean over draws of q."""
    theta, factor = guide(w, rng.normal(size=(draws, 2)))
    entropy = np.sum(np.log(np.diag(factor)))
    return np.mean(log_joint(theta, counts)) + entropy


def fit(counts, rng, steps, rate=0.03):
    """The guide's parameters, by Adam; and the bound at each step."""
    slope = value_and_grad(evidence_bound)
    w, first, second = np.array([0.0, 1.0, -1.0, -1.0, 0.0]), np.zeros(5), np.zeros(5)
    bounds = []
    for step in range(1, steps + 1):
        bound, gradient = slope(w, counts, rng)
        bounds.append(bound)
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        size = rate * min(1.0, 4.0 * (1.0 - step / (steps + 1)))
        w = w + size * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return w, np.array(bounds)


def posterior(counts, grid):
    """The posterior's density on a grid, and the grid."""
    rates, heights = np.linspace(-1.2, 0.5, grid), np.linspace(1.0, 2.7, grid)
    points = np.stack(np.meshgrid(rates, heights), axis=-1)
    logs = log_joint(points, counts)
    density = np.exp(logs - np.max(logs))
    return rates, heights, density / np.sum(density)


def draw(counts, w, bounds, density, rng, output):
    """The counts with draws of the guide, the posterior with the guide, and the ascent."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    data, plane, ascent = figure.subplots(1, 3)

    theta, factor = guide(w, rng.normal(size=(60, 2)))
    data.plot(TIMES, expected(theta).T, color="tab:blue", alpha=0.15, linewidth=1)
    data.plot(TIMES, expected(TRUTH), color="black", label="truth")
    data.plot(TIMES, counts, ".", color="tab:red", label="counts")
    data.set(xlabel="time", ylabel="count", title="Decays that the guide draws")
    data.legend(fontsize="x-small")

    rates, heights, heat = density
    plane.contourf(rates, heights, heat, 12, cmap="Greys")
    circle = np.linspace(0, 2 * np.pi, 100)
    ring = np.stack([np.cos(circle), np.sin(circle)], axis=-1) @ factor.T
    for deviations in (1, 2):
        plane.plot(*(w[:2] + deviations * ring).T, color="tab:blue", linewidth=1)
    plane.plot(*TRUTH, "*", color="tab:red", markersize=11)
    plane.set(
        xlabel="log rate",
        ylabel="log height",
        title="Posterior, and the guide",
        xticks=(-1, -0.5, 0, 0.5),
    )

    ascent.plot(bounds, color="tab:blue", linewidth=0.5)
    ascent.set(xlabel="step", title="Evidence bound, as it is drawn", ylim=(bounds[-1] - 30, None))
    figure.savefig(output, dpi=90)


def main(output=Path("variational_inference.png"), steps=2000, grid=120):
    """Fit, and draw; returns the means and deviations of the guide, and those of the posterior."""
    rng = np.random.default_rng(5)
    counts = rng.poisson(expected(TRUTH) + 0.3).astype(float)
    w, bounds = fit(counts, rng, steps)
    _, factor = guide(w, np.zeros((1, 2)))
    own = w[:2], np.sqrt(np.sum(factor**2, axis=1))

    rates, heights, density = posterior(counts, grid)
    places = np.stack(np.meshgrid(rates, heights), axis=-1)
    mean = np.sum(density[..., None] * places, axis=(0, 1))
    deviation = np.sqrt(np.sum(density[..., None] * (places - mean) ** 2, axis=(0, 1)))
    print(f"guide:     log rate {own[0][0]:+.2f} +- {own[1][0]:.2f}", end="")
    print(f", log height {own[0][1]:.2f} +- {own[1][1]:.2f}")
    print(f"posterior: log rate {mean[0]:+.2f} +- {deviation[0]:.2f}", end="")
    print(f", log height {mean[1]:.2f} +- {deviation[1]:.2f}")
    draw(counts, w, bounds, (rates, heights, density), rng, output)
    return own, (mean, deviation)


if __name__ == "__main__":
    main()
