"""Layers of the ground, heard from above: the echoes of a pulse give the speed of sound below.

The wave equation is stepped as one writes it: a zero field, each row filled from the two before,
edges that absorb. Gradient descent through the simulation finds the speeds whose echoes are those
that were heard: full waveform inversion, in one dimension.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize

from tapegrad import value_and_grad

CELLS, STEPS = 120, 420
RATIO = 0.5  # of the time step to the cell, where the speed is 1
HEARD = 6  # the cell of the microphone
AGE = 0.012 * (np.arange(STEPS) - 30.0) ** 2
PULSE = (1 - 2 * AGE) * np.exp(-AGE)
TRUTH = np.repeat([1.0, 1.25, 0.9, 1.4], CELLS // 4)


def waves(speed):
    """The field at all times, one row each, and what is heard."""
    field, heard = np.zeros((STEPS, CELLS)), np.zeros(STEPS)
    push = (RATIO * speed) ** 2
    edge = RATIO * speed[-1]
    for t in range(1, STEPS - 1):
        now, before = field[t], field[t - 1]
        bend = now[2:] - 2 * now[1:-1] + now[:-2]
        field[t + 1, 1:-1] = 2 * now[1:-1] - before[1:-1] + push[1:-1] * bend
        field[t + 1, 2] += PULSE[t]
        field[t + 1, 0] = now[0] + RATIO * (now[1] - now[0])  # waves that leave
        field[t + 1, -1] = now[-1] - edge * (now[-1] - now[-2])
        heard[t + 1] = field[t + 1, HEARD]
    return field, heard


def misfit(speed, echoes):
    """How far the echoes are from those that were heard; and how much the speeds vary."""
    _, heard = waves(speed)
    varied = np.sum(np.sqrt(np.diff(speed) ** 2 + 1e-4))
    return np.sum((heard - echoes) ** 2) + 0.1 * varied + np.sum((speed[:10] - 1.0) ** 2)


def draw(speed, echoes, output):
    """The waves in the ground, the echoes, and the speeds."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    ground, sound, layers = figure.subplots(1, 3)
    field, heard = waves(speed)
    reach = 0.6 * np.max(np.abs(field[60:]))
    ground.imshow(field.T, cmap="RdBu", vmin=-reach, vmax=reach, aspect="auto")
    ground.set(xlabel="time step", ylabel="depth", title="Waves below")

    sound.plot(waves(np.ones(CELLS))[1], color="gray", linewidth=1, label="without layers")
    sound.plot(echoes, color="black", label="heard")
    sound.plot(heard, "--", color="tab:red", label="found")
    sound.set(xlabel="time step", title="Echoes", xlim=(60, STEPS), ylim=(-1, 1))
    sound.legend(fontsize="x-small")

    layers.plot(TRUTH, color="black", label="truth")
    layers.plot(speed, color="tab:red", label="found")
    layers.set(xlabel="depth", ylabel="speed of sound", title="Layers")
    layers.legend(fontsize="x-small")
    figure.savefig(output, dpi=90)


def main(output=Path("echo_sounding.png"), iterations=400):
    """Listen, and draw; returns the misfit that is left, and the mean error of the speeds."""
    echoes = waves(TRUTH)[1]
    slope = value_and_grad(misfit)
    start = np.ones(CELLS)
    options = {"maxiter": iterations}
    found = minimize(slope, start, args=(echoes,), jac=True, method="L-BFGS-B", options=options)
    speed, heard = found.x, slice(CELLS - 20)  # from below that no echo comes back in time
    error = np.mean(np.abs(speed - TRUTH)[heard])
    print(f"misfit {slope(start, echoes)[0]:.2f} -> {found.fun:.2f} in {found.nit} steps")
    print(f"speeds are off by {error:.3f}, before by {np.mean(np.abs(1.0 - TRUTH)[heard]):.3f}")
    draw(speed, echoes, output)
    return found.fun, error


if __name__ == "__main__":
    main()
