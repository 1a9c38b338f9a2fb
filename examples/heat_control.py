"""A plate is heated so that, a hundred steps later, what has become of the heat is a ring.

The loop over time is a plain `for` loop over slices of a padded array. Heat forgets: many starts
end up in almost the same picture, and gradient descent finds one that is nowhere below zero.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tapegrad import value_and_grad

SIZE = 48
STEPS = 100


def heat(u):
    """The temperatures after all steps. What flows over the edges comes back: they insulate."""
    for _ in range(STEPS):
        p = np.pad(u, 1, mode="edge")
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        u = u + 0.05 * (around - 4 * u)
    return u


def loss(root, target):
    """Squared errors of the last picture; the first one is a square, so it is never negative."""
    return np.sum((heat(root**2) - target) ** 2)


def ring():
    """One on a ring, zero off it, with soft edges: no heat keeps an edge sharp."""
    x, y = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    return 1 / (1 + np.exp(abs(np.hypot(x, y) - 14) - 4))


def draw(pictures, losses, output):
    """The pictures on one scale of colours each, and how the loss fell."""
    figure = Figure(figsize=(12, 3), layout="constrained")
    *tops, last = figure.subplots(1, len(pictures) + 1)
    for axes, (title, picture) in zip(tops, pictures.items(), strict=True):
        image = axes.imshow(picture, cmap="inferno", vmin=0)
        axes.set(title=title, xticks=[], yticks=[])
        figure.colorbar(image, ax=axes, shrink=0.8)
    last.semilogy(losses, color="tab:red")
    last.set(title="squared errors", xlabel="step of descent")
    last.grid(alpha=0.3)
    figure.savefig(output, dpi=100)


def main(output=Path("heat_control.png"), steps=300, rate=0.02, momentum=0.9):
    """Descend, and draw; returns the squared errors of the last picture, as a share."""
    target = ring()
    dloss = value_and_grad(loss)
    root, speed = np.full((SIZE, SIZE), 0.5), np.zeros((SIZE, SIZE))
    losses = []
    for _ in range(steps):
        value, gradient = dloss(root, target)
        speed = momentum * speed - rate * gradient
        root = root + speed
        losses.append(float(value))

    start = root**2
    result = heat(start)
    share = np.sum((result - target) ** 2) / np.sum(target**2)
    print(f"loss {losses[0]:.1f} -> {losses[-1]:.3f}, {share:.1%} of the ring is missed")
    draw({"wanted": target, "found: start": start, "its end": result}, losses, output)
    return float(share)


if __name__ == "__main__":
    main()
