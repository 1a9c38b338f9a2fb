"""Hares and lynxes: an ordinary differential equation, fitted to what trappers brought in.

Runge and Kutta's method is a plain `for` loop, and the gradient goes back through its 400 steps.
The model is Lotka and Volterra's: hares breed and are eaten, lynxes eat and die.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize

from tapegrad import value_and_grad

# Pelts that the Hudson's Bay Company counted from 1900 to 1920, in thousands: hares, then lynxes.
PELTS = np.array(
    [
        (30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1)
        + (40.3, 57.0, 76.6, 52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7),
        (4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4)
        + (8.0, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6),
    ]
).T
YEARS = 1900 + np.arange(len(PELTS))
STEPS = 20  # of Runge and Kutta's in a year
SIGNS = np.array([1.0, -1.0])  # alone, hares become more and lynxes fewer


def change(animals, alone, together):
    """Of hares and lynxes, in a year; `together` is what one of the others does to them."""
    return SIGNS * animals * (alone - together * animals[::-1])


def path(logs):
    """Hares and lynxes at each step, from the logarithms of what the model doesn't know."""
    animals, alone, together = np.exp(logs).reshape(3, 2)
    h = 1 / STEPS
    states = [animals]
    for _ in range(STEPS * (len(PELTS) - 1)):
        k1 = change(animals, alone, together)
        k2 = change(animals + h / 2 * k1, alone, together)
        k3 = change(animals + h / 2 * k2, alone, together)
        k4 = change(animals + h * k3, alone, together)
        animals = animals + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        states.append(animals)
    return np.stack(states)


def loss(logs):
    """Squared errors of the logarithms: an error counts by its share, not by its pelts."""
    return np.sum((np.log(path(logs)[::STEPS]) - np.log(PELTS)) ** 2)


def draw(start, fit, output):
    """Both populations over the years, and one against the other."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    time, phase = figure.subplots(1, 2, width_ratios=(2, 1))
    when = np.linspace(YEARS[0], YEARS[-1], len(fit))
    for column, (name, color) in enumerate((("hares", "tab:blue"), ("lynxes", "tab:orange"))):
        time.plot(when, start[:, column], "--", color=color, alpha=0.5, label=f"{name}, start")
        time.plot(when, fit[:, column], color=color, label=f"{name}, fit")
        time.plot(YEARS, PELTS[:, column], "o", color=color, markersize=4, label=f"{name}, pelts")
    time.set(ylabel="thousands", xticks=YEARS[::4], ylim=(0, 130), title="Hares and lynxes")
    time.legend(fontsize="x-small", ncols=2, loc="upper right")
    phase.plot(*start.T, "--", color="gray", alpha=0.6, label="start")
    phase.plot(*fit.T, color="tab:green", label="fit")
    phase.plot(*PELTS.T, "o", color="black", markersize=3, label="pelts")
    phase.set(xlabel="hares", ylabel="lynxes", title="One against the other")
    phase.legend(fontsize="x-small")
    figure.savefig(output, dpi=100)


def main(output=Path("ode_fit.png")):
    """Fit, and draw; returns the fit, of the logarithms."""
    start = np.log([30.0, 4.0, 0.6, 0.6, 0.02, 0.02])
    fit = minimize(value_and_grad(loss), start, jac=True, method="L-BFGS-B")
    _, alone, together = np.exp(fit.x).reshape(3, 2)
    print(f"{fit.nit} iterations, loss {loss(start):.2f} -> {fit.fun:.2f}")
    print(f"hares:  {alone[0]:.3f} born, {together[0]:.4f} eaten by each thousand of lynxes")
    print(f"lynxes: {alone[1]:.3f} die, {together[1]:.4f} born for each thousand of hares")
    draw(path(start), path(fit.x), output)
    return fit


if __name__ == "__main__":
    main()
