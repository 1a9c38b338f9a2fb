"""How sure an estimate is: error bars of a regression by its Hessian, and where the model is wrong.

Counts are fitted by a Poisson regression, and vary more than Poisson's do. The inverse of the
Hessian is the covariance of the estimates if the model is right. The sandwich H^-1 B H^-1, with the
gradients of each observation in B, holds if it isn't (P. Huber, 1967). The Laplace approximation
takes the same Hessian for the evidence of the model.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import gammaln

from tapegrad import grad, value_grad_and_hessian, vmap

TRUTH = np.array([1.2, 0.8, -0.5])


def nll(beta, x, count):
    """Of one observation, or of many: the negative logarithm of Poisson's probability."""
    rate = x @ beta
    return np.sum(np.exp(rate) - count * rate + gammaln(count + 1.0))


def posterior(beta, x, count):
    """With a normal prior of variance 10 for each coefficient, up to its constant."""
    return nll(beta, x, count) + np.sum(beta**2) / 20


def observed(n, rng):
    """Counts whose rates vary beyond what explains them."""
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return x, rng.poisson(np.exp(x @ TRUTH) * rng.gamma(2.0, 0.5, n)).astype(float)


def draw(found, plain, robust, output):
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(found))
    axes.errorbar(places - 0.1, found, 2 * plain, fmt="o", capsize=4, label="by the Hessian")
    axes.errorbar(places + 0.1, found, 2 * robust, fmt="s", capsize=4, label="by the sandwich")
    axes.plot(places, TRUTH, "k_", markersize=20, label="truth")
    axes.set(
        xticks=places, xticklabels=["constant", "first", "second"], title="Two standard errors"
    )
    axes.legend(fontsize="small")
    figure.savefig(output, dpi=90)


def main(output=Path("standard_errors.png"), n=400):
    """Fit, and draw; returns the estimates, their standard errors of both kinds, the evidence."""
    x, count = observed(n, np.random.default_rng(3))
    derivatives = value_grad_and_hessian(posterior)
    found = minimize(
        lambda b: derivatives(b, x, count)[0],
        np.zeros(3),
        jac=lambda b: derivatives(b, x, count)[1],
        hess=lambda b: derivatives(b, x, count)[2],
        method="trust-exact",
    ).x
    value, _, hessian = derivatives(found, x, count)
    covariance = np.linalg.inv(hessian)
    scores = vmap(grad(nll), in_axes=(None, 0, 0))(found, x, count)  # a gradient a row
    plain = np.sqrt(np.diag(covariance))
    robust = np.sqrt(np.diag(covariance @ (scores.T @ scores) @ covariance))
    evidence = -value - 1.5 * np.log(10) - 0.5 * np.linalg.slogdet(hessian)[1]
    print("estimates       ", found.round(3))
    print("by the Hessian  ", plain.round(3))
    print("by the sandwich ", robust.round(3))
    print(f"log evidence {evidence:.1f}")
    draw(found, plain, robust, output)
    return found, plain, robust, evidence


if __name__ == "__main__":
    main()
