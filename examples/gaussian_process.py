"""A Gaussian process that finds out from the data how wide, how high and how noisy its curves are.

The log likelihood of the data is one Cholesky factor away from the kernel's matrix. SciPy's own
functions factor it and minimise; the gradient goes through them.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from tapegrad import value_and_grad


def hidden(x):
    return np.sin(1.5 * x) + 0.4 * np.cos(4.0 * x)


def measured(count, rng):
    """Places, with a gap in the middle, and what is measured there."""
    x = np.sort(
        np.concatenate([rng.uniform(-3, -0.5, count // 2), rng.uniform(0.8, 3, count // 2)])
    )
    return x, hidden(x) + 0.15 * rng.normal(size=len(x))


def kernel(logs, x, z):
    """The covariance of the curve's values at x and z."""
    height, width, _ = np.exp(logs)
    return height**2 * np.exp(-0.5 * ((x[:, None] - z) / width) ** 2)


def minus_log_likelihood(logs, x, y):
    """Of the measured values, given the logarithms of height, width and noise."""
    covariance = kernel(logs, x, x) + np.exp(2 * logs[2]) * np.eye(len(x))
    factor = cho_factor(covariance, lower=True)
    halves = np.sum(np.log(np.diag(factor[0])))
    return 0.5 * y @ cho_solve(factor, y) + halves + 0.5 * len(x) * np.log(2 * np.pi)


def predicted(logs, x, y, z):
    """Means and standard deviations of the curve at z."""
    covariance = kernel(logs, x, x) + np.exp(2 * logs[2]) * np.eye(len(x))
    factor = cho_factor(covariance, lower=True)
    across = kernel(logs, x, z)
    known = solve_triangular(factor[0], across, lower=True)
    variance = np.exp(2 * logs[0]) - np.sum(known**2, axis=0)
    return across.T @ cho_solve(factor, y), np.sqrt(np.maximum(variance, 0))


def draw(before, after, x, y, output):
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    z = np.linspace(-3.5, 3.5, 300)
    for axes, logs, title in zip(
        figure.subplots(1, 2, sharey=True),
        (before, after),
        ("At the start", "Likeliest"),
        strict=True,
    ):
        mean, deviation = predicted(logs, x, y, z)
        axes.fill_between(z, mean - 2 * deviation, mean + 2 * deviation, alpha=0.3)
        axes.plot(z, mean, label="process")
        axes.plot(z, hidden(z), color="black", linewidth=1, label="hidden curve")
        axes.plot(x, y, ".", color="gray", label="measured")
        height, width, noise = np.exp(logs)
        axes.set(title=f"{title}: height {height:.2f}, width {width:.2f}, noise {noise:.2f}")
    axes.legend(fontsize="x-small")
    figure.savefig(output, dpi=90)


def main(output=Path("gaussian_process.png"), count=60):
    """Fit, and draw; returns height, width and noise, and the slope that is left."""
    x, y = measured(count, np.random.default_rng(4))
    start = np.log([0.5, 2.0, 0.5])
    fit = minimize(value_and_grad(minus_log_likelihood), start, (x, y), jac=True, method="BFGS")
    print(f"-log likelihood {minus_log_likelihood(start, x, y):.1f} -> {fit.fun:.1f}")
    print("height, width, noise", np.exp(fit.x).round(2))
    draw(start, fit.x, x, y, output)
    return np.exp(fit.x), float(np.max(np.abs(fit.jac)))


if __name__ == "__main__":
    main()
