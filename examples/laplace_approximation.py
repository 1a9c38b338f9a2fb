"""Laplace's approximation: a posterior by its mode and the Hessian there, held against quadrature.

Twenty animals were given four doses of a drug (A. Racine et al., 1986; A. Gelman et al., "Bayesian
Data Analysis", section 3.7). The posterior of a dose's effect is near a normal distribution, whose
covariance is the inverse of the Hessian, and the integral of that is the evidence of the model:

    log p(deaths) = log p(deaths, mode) + log 2 pi - log det H / 2      for two parameters

It tells whether deaths follow the dose by a logistic curve or by one that isn't symmetric. With
more animals the posterior is nearer to a normal distribution.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import gammaln

from tapegrad import value_grad_and_hessian, vmap

DOSE = np.array([-0.86, -0.30, -0.05, 0.73])  # the logarithm, in g/ml
ANIMALS, DEATHS = np.full(4, 5.0), np.array([0.0, 1.0, 3.0, 5.0])
MEAN, SCALE = np.array([0.0, 10.0]), np.array([2.0, 10.0])  # of the prior, a normal one


def logistic(score):
    """The logarithms of a curve's values, and of one less these."""
    return -np.logaddexp(0.0, -score), -np.logaddexp(0.0, score)


def gompertz(score):
    """Of the complementary log-log curve, 1 - exp(-exp(score))."""
    rate = np.exp(score)
    return np.log(-np.expm1(-rate)), -rate


def joint(p, curve, times=1.0):
    """The logarithm of the probability of parameters and deaths, of so many times the animals."""
    n, k = times * ANIMALS, times * DEATHS
    log_dead, log_alive = curve(p[0] + p[1] * DOSE)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    prior = -0.5 * ((p - MEAN) / SCALE) ** 2 - np.log(SCALE * np.sqrt(2 * np.pi))
    return np.sum(prior) + np.sum(ways + k * log_dead + (n - k) * log_alive)


def laplace(curve, times=1.0):
    """The mode of the posterior, its covariance there, and the logarithm of the evidence."""
    derivatives = value_grad_and_hessian(lambda p: -joint(p, curve, times))
    mode = minimize(
        lambda p: derivatives(p)[0],
        np.array([0.0, 5.0]),
        jac=lambda p: derivatives(p)[1],
        hess=lambda p: derivatives(p)[2],
        method="trust-exact",
    ).x
    value, _, hessian = derivatives(mode)
    evidence = -value + np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(hessian)[1]
    return mode, np.linalg.inv(hessian), evidence


def quadrature(curve, mode, covariance, times=1.0, points=160):
    """The evidence by a sum over a grid, and the grid with the posterior on it."""
    spread = np.sqrt(np.diag(covariance))
    a = mode[0] + spread[0] * np.linspace(-6, 9, points)
    b = mode[1] + spread[1] * np.linspace(-4, 11, points)
    grid = np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2)
    density = vmap(lambda p: joint(p, curve, times))(grid).reshape(points, points)
    cell = (a[1] - a[0]) * (b[1] - b[0])
    top = density.max()
    evidence = top + np.log(np.sum(np.exp(density - top)) * cell)
    return evidence, a, b, np.exp(density - evidence)


def draw(fits, output):
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    mode, covariance, (a, b, density) = fits[1]
    left.contourf(a, b, density, levels=12, cmap="Blues")
    turn = np.linspace(0, 2 * np.pi, 100)
    root = np.linalg.cholesky(covariance)
    for radius in (1, 2):
        ellipse = mode[:, None] + radius * root @ np.stack([np.cos(turn), np.sin(turn)])
        left.plot(*ellipse, "C1")
    left.set(xlabel="intercept", ylabel="slope", title="Posterior, and Laplace's ellipses")
    left.set(xlim=(-3, 6), ylim=(-5, 35))
    for number, (times, (mode, covariance, (a, b, density))) in enumerate(fits.items()):
        deviation = np.sqrt(covariance[1, 1])
        normal = np.exp(-0.5 * ((b - mode[1]) / deviation) ** 2) / deviation / np.sqrt(2 * np.pi)
        own = np.trapezoid(density, a, axis=1)
        right.plot(b, own, f"C{number}", label=f"{20 * times} animals, by quadrature")
        right.plot(b, normal, f"C{number}--", label="by the Hessian")
    right.set(xlabel="slope", xlim=(-5, 35), title="Of the slope alone")
    right.legend(fontsize="small")
    figure.savefig(output, dpi=90)


def main(output=Path("laplace_approximation.png")):
    """Approximate, integrate, draw; the evidences of both curves, of the data and of eight times
    these, by the Hessian and by quadrature."""
    evidences, fits = [], {}
    for times in (1, 8):
        for curve in (gompertz, logistic):
            mode, covariance, found = laplace(curve, times)
            exact, *grid = quadrature(curve, mode, covariance, times)
            evidences.append((found, exact))
            print(f"{20 * times:3} animals, {curve.__name__:8}", end="  ")
            print(f"log evidence {found:.3f}, by quadrature {exact:.3f}")
        fits[times] = mode, covariance, grid
    draw(fits, output)
    return np.array(evidences)


if __name__ == "__main__":
    main()
