"""A Kalman filter that finds out by itself how noisy its sensor and the world are.

The filter is a plain `for` loop over the observations. How likely it holds each before it sees it
gives the likelihood of them all, and gradient ascent through the loop finds the likeliest noises.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tapegrad import jit, value_and_grad

# A pendulum's position and velocity after a step. It is damped, and pushed at random.
MOVE = 0.99 * np.array([[np.cos(0.12), np.sin(0.12)], [-np.sin(0.12), np.cos(0.12)]])
PUSHED = np.array([[0.0, 0.0], [0.0, 1.0]])  # what a push adds to the covariance: the velocity's
NOISES = np.array([0.25, 1.0])  # the truth: standard deviations of the pushes, and of the sensor


def simulated(count, rng):
    """Positions of the pendulum, and what the sensor sees of them."""
    state, track = np.array([3.0, 0.0]), []
    for push in NOISES[0] * rng.normal(size=count):
        state = MOVE @ state + np.array([0.0, push])
        track.append(state[0])
    return np.array(track), np.array(track) + NOISES[1] * rng.normal(size=count)


def kalman(logs, seen):
    """Means and variances of the positions, and the log likelihood of all that was seen."""
    push, sensor = np.exp(2 * logs)  # variances
    mean, covariance = np.zeros(2), 4 * np.eye(2)
    means, variances, total = [], [], 0.0
    for y in seen:
        mean = MOVE @ mean
        covariance = MOVE @ covariance @ MOVE.T + push * PUSHED

        error, variance = y - mean[0], covariance[0, 0] + sensor
        total = total - 0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)

        gain = covariance[:, 0] / variance
        mean = mean + gain * error
        covariance = covariance - variance * np.outer(gain, gain)
        means.append(mean[0])
        variances.append(covariance[0, 0])
    return np.stack(means), np.stack(variances), total


def mean_log_likelihood(logs, seen):
    """Of one observation, given the logarithms of the noises."""
    return kalman(logs, seen)[2] / len(seen)


def draw(track, seen, climb, grid, output):
    """The filtered track in its band, and the climb on the map of the likelihood."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    path, chart = figure.subplots(1, 2, width_ratios=(2, 1))

    mean, variance, _ = kalman(climb[-1], seen)
    band = 2 * np.sqrt(variance)
    time = np.arange(len(seen))
    path.plot(time, seen, ".", color="gray", markersize=3, label="seen")
    path.fill_between(time, mean - band, mean + band, alpha=0.3, label="two standard deviations")
    path.plot(time, mean, color="tab:blue", label="filtered")
    path.plot(time, track, color="black", linewidth=1, label="hidden track")
    path.set(xlabel="step", ylabel="position", title="A pendulum, pushed at random")
    path.legend(fontsize="x-small")

    likelihood = jit(mean_log_likelihood)
    pushes, sensors = np.linspace(-2.5, 0.5, grid), np.linspace(-0.9, 0.9, grid)
    heights = [[likelihood(np.array([p, s]), seen) for p in pushes] for s in sensors]
    levels = np.max(heights) - np.geomspace(1.0, 0.001, 16)
    chart.contourf(pushes, sensors, heights, levels, extend="both")
    chart.plot(*climb.T, ".-", color="white", markersize=4, linewidth=1, label="ascent")
    chart.plot(*np.log(NOISES), "*", color="tab:red", markersize=11, label="truth")
    for axis, ticks in ((chart.xaxis, (0.1, 0.2, 0.5, 1.0)), (chart.yaxis, (0.5, 1.0, 2.0))):
        axis.set_ticks(np.log(ticks), ticks)
    chart.set(xlabel="noise of the pushes", ylabel="noise of the sensor", title="Log likelihood")
    chart.legend(fontsize="x-small", labelcolor="white", facecolor="gray")
    figure.savefig(output, dpi=90)


def main(output=Path("kalman_likelihood.png"), count=300, steps=150, rate=0.4, grid=40):
    """Climb, and draw; returns the noises found, and the slope that is left there."""
    track, seen = simulated(count, np.random.default_rng(3))
    slope = value_and_grad(mean_log_likelihood)
    logs = np.log([1.2, 0.6])
    climb = [logs]
    for _ in range(steps):
        value, gradient = slope(logs, seen)
        logs = logs + rate * gradient
        climb.append(logs)

    found = np.exp(logs)
    print(f"log likelihood of an observation {slope(climb[0], seen)[0]:.3f} -> {value:.3f}")
    print(f"noises {np.round(found, 2)}, in truth {NOISES}")
    mean, variance, _ = kalman(logs, seen)
    inside = np.mean(np.abs(mean - track) < 2 * np.sqrt(variance))
    print(f"{inside:.0%} of the hidden track is inside the band of two standard deviations")
    draw(track, seen, np.array(climb), grid, output)
    return found, float(np.max(np.abs(gradient)))


if __name__ == "__main__":
    main()
