"""How long machines last, of which many still run: a Weibull model with censored observations.

A machine that failed adds the density of its lifetime to the likelihood, one that still runs the
probability to last so long. Both are SciPy's, under their own names; the Hessian, the derivative
of the gradient, gives the error bars.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.stats import weibull_min

from tapegrad import grad, value_and_grad

TRUTH = np.array([1.2, -0.7, 0.5, np.log(1.8)])  # of the scale's logarithm; and of the shape's
NAMES = ("usual life", "heat", "care", "shape")


def observed(count, rng):
    """What is known of each machine, how long it was watched, and whether it failed by then."""
    features = np.column_stack(
        [np.ones(count), rng.uniform(0, 2, count), rng.integers(0, 2, count)]
    )
    lives = np.exp(features @ TRUTH[:3]) * rng.weibull(np.exp(TRUTH[3]), size=count)
    watched = rng.uniform(0.5, 5.0, count)
    return features, np.minimum(lives, watched), lives <= watched


def loss(params, features, time, failed):
    """Minus the mean log likelihood of accelerated failure: log T = features @ beta + noise."""
    scale, shape = np.exp(features @ params[:3]), np.exp(params[3])
    density = weibull_min.logpdf(time, shape, scale=scale)
    survival = weibull_min.logsf(time, shape, scale=scale)
    return -np.mean(np.where(failed, density, survival))


def deviations(params, *data):
    """Standard deviations of the estimates, by the inverse of the Hessian."""
    slope = grad(loss)
    rows = [grad(lambda p, k=k: slope(p, *data)[k])(params) for k in range(len(params))]
    return np.sqrt(np.diag(np.linalg.inv(len(data[1]) * np.array(rows))))


def stairs(time, failed):
    """Kaplan and Meier's estimate of the survival curve."""
    order = np.argsort(time)
    left = np.arange(len(time), 0, -1)
    return time[order], np.cumprod(1 - failed[order] / left)


def draw(params, errors, data, output):
    features, time, failed = data
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    curves, chart = figure.subplots(1, 2, width_ratios=(3, 2))
    t = np.linspace(0.01, 5, 200)
    for hot, cared, color in ((False, True, "tab:blue"), (True, False, "tab:red")):
        group = ((features[:, 1] > 1) == hot) & (features[:, 2] == cared)
        curves.step(*stairs(time[group], failed[group]), color=color, alpha=0.5)
        scales = np.exp(features[group] @ params[:3])
        mean = np.mean(weibull_min.sf(t[:, None], np.exp(params[3]), scale=scales), axis=1)
        label = f"{'hot' if hot else 'cool'}, {'cared for' if cared else 'neglected'}"
        curves.plot(t, mean, color=color, label=label)
    curves.set(xlabel="years", ylabel="still running", title="Counted (steps), and the model")
    curves.legend(fontsize="small")
    rows = np.arange(len(NAMES))
    chart.errorbar(params, rows, xerr=2 * errors, fmt="o", capsize=3, label="two deviations")
    chart.plot(TRUTH, rows, "*", color="tab:red", markersize=10, label="truth")
    chart.set_yticks(rows, NAMES)
    chart.set(title="Estimates")
    chart.legend(fontsize="small")
    figure.savefig(output, dpi=90)


def main(output=Path("survival.png"), count=800):
    """Fit, and draw; returns the estimates, and their standard deviations."""
    data = observed(count, np.random.default_rng(2))
    fit = minimize(value_and_grad(loss), np.zeros(4), data, jac=True, method="BFGS")
    errors = deviations(fit.x, *data)
    print(f"{np.mean(~data[2]):.0%} of {count} machines still run")
    for name, estimate, error, truth in zip(NAMES, fit.x, errors, TRUTH, strict=True):
        print(f"{name:11} {estimate:6.2f} +- {error:.2f}, in truth {truth:.2f}")
    draw(fit.x, errors, data, output)
    return fit.x, errors


if __name__ == "__main__":
    main()
