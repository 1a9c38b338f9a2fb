"""An orbit is found from how fast its star comes and goes: Kepler's equation as an implicit layer.

Where a planet is at a time nobody can write down: the eccentric anomaly E solves
E - e sin(E) = M, and SciPy's Newton iteration finds it, for all times at once. How E answers to the
orbit follows from the equation at its solution, not from the iterations; so the loss is
differentiated through the solver, whatever steps that took.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize, newton

from tapegrad import value_and_grad

# Logarithm of the half amplitude in m/s, logit of the eccentricity, orientation, phase, drift
TRUTH = np.array([np.log(55.0), 0.4, 0.9, 2.2, 4.0])
PERIOD = 4.23  # days


def anomaly(mean, eccentricity):
    """E, where E - e sin(E) = `mean`."""
    return newton(
        lambda angle: angle - eccentricity * np.sin(angle) - mean,
        mean + 0.0,
        fprime=lambda angle: 1.0 - eccentricity * np.cos(angle),
        tol=1e-12,
    )


def velocity(params, time):
    """The star's velocity along our line of sight."""
    amplitude, eccentricity = np.exp(params[0]), 1 / (1 + np.exp(-params[1]))
    mean = 2 * np.pi * time / PERIOD + params[3]
    half = 0.5 * anomaly(mean, eccentricity)
    stretch = np.sqrt((1 + eccentricity) / (1 - eccentricity))
    angle = 2 * np.arctan2(stretch * np.sin(half), np.cos(half))
    swing = np.cos(angle + params[2]) + eccentricity * np.cos(params[2])
    return amplitude * swing + params[4]


def loss(params, time, seen, noise):
    return 0.5 * np.mean(((velocity(params, time) - seen) / noise) ** 2)


def observed(count, noise, rng):
    time = np.sort(rng.uniform(0, 30, count))
    return time, velocity(TRUTH, time) + noise * rng.normal(size=count)


def draw(start, found, time, seen, noise, output):
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    path, folded = figure.subplots(1, 2, width_ratios=(3, 2))
    t = np.linspace(0, 30, 600)
    path.errorbar(time, seen, noise, fmt=".", color="gray", markersize=4, label="seen")
    path.plot(t, velocity(start, t), linewidth=1, color="tab:orange", label="start")
    path.plot(t, velocity(found, t), color="tab:blue", label="found")
    path.set(xlabel="days", ylabel="m/s", title="The star's velocity towards us")
    path.legend(fontsize="small")
    turn = np.linspace(0, PERIOD, 200)
    folded.errorbar(time % PERIOD, seen, noise, fmt=".", color="gray", markersize=4)
    folded.plot(turn, velocity(found, turn), color="tab:blue", label="found")
    folded.plot(turn, velocity(TRUTH, turn), "--", color="black", linewidth=1, label="truth")
    folded.set(xlabel="days since the start of a turn", title="Turn over turn")
    folded.legend(fontsize="small")
    figure.savefig(output, dpi=90)


def main(output=Path("implicit_layer.png"), count=60, noise=4.0):
    """Fit, and draw; returns the parameters found, and the mean square of the errors in noises."""
    time, seen = observed(count, noise, np.random.default_rng(1))
    start = np.array([np.log(40.0), -0.5, 0.4, 2.6, 0.0])
    fit = minimize(value_and_grad(loss), start, (time, seen, noise), jac=True, method="BFGS")
    print(f"mean square of the errors, in noises: {2 * fit.fun:.2f}")
    amplitude, eccentricity = np.exp(fit.x[0]), 1 / (1 + np.exp(-fit.x[1]))
    print(f"half amplitude {amplitude:.1f} m/s, in truth {np.exp(TRUTH[0]):.1f}")
    print(f"eccentricity {eccentricity:.3f}, in truth {1 / (1 + np.exp(-TRUTH[1])):.3f}")
    draw(start, fit.x, time, seen, noise, output)
    return fit.x, 2 * fit.fun


if __name__ == "__main__":
    main()
