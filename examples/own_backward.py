"""Two functions with a backward pass of their own, of François Fleuret's course on deep learning.

`Something` is |u v|, element by element. `KillHead` sets the first columns to zero: numbers are
moved by gradient descent until what it leaves of them is a target, and the columns that it hides
stay as they were.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tapegrad import Function, gradcheck, optim


class Something(Function):
    """|u v|, element by element."""

    @staticmethod
    def forward(ctx, u, v):
        ctx.save_for_backward(u, v)
        return np.abs(u * v)

    @staticmethod
    def backward(ctx, ct):
        u, v = ctx.saved_tensors
        slope = ct * np.sign(u * v)
        return slope * v, slope * u


class KillHead(Function):
    """The matrix with zeros in its first `n` columns."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        result = x.copy()
        result[:, :n] = 0
        return result

    @staticmethod
    def backward(ctx, ct):
        result = ct.copy()
        result[:, : ctx.n] = 0
        return result, None


def loss(x, y):
    """Mean squared error of what `KillHead` leaves of x."""
    return np.mean((KillHead.apply(x, 2) - y) ** 2)


def train(x, y, steps, rate=1.0):
    """The numbers after some steps of gradient descent, and the loss before each."""
    descent = optim.sgd(rate)
    step, state, losses = optim.training_step(loss, descent), descent.init(x), []
    for _ in range(steps):
        value, x, state = step(x, state, y)
        losses.append(float(value))
    return x, losses


def draw(y, start, end, losses, floor, output):
    """The target, the numbers before and after, and the loss."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.6))
    parts = {"target": y, "start": start, "end": end}
    for axes, (name, part) in zip(left.subplots(3, 1), parts.items(), strict=True):
        axes.imshow(part, cmap="RdBu", vmin=-2, vmax=2)
        axes.axvline(1.5, color="black")
        axes.set(title=name, xticks=[], yticks=[])
    axes = right.subplots()
    axes.plot(losses, label="loss")
    axes.axhline(floor, color="black", lw=0.8, ls="--", label="of the first two columns")
    axes.set(xlabel="step", ylim=(0, None))
    axes.legend()
    figure.savefig(output, dpi=100)


def main(output=Path("own_backward.png"), steps=60):
    """Check both backward passes, train, and draw; returns the numbers before and after, the target
    and the losses."""
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, 5))
    assert gradcheck(Something.apply, (u, v), eps=1e-6, atol=1e-4)
    assert gradcheck(KillHead.apply, (rng.uniform(-10, 10, (10, 20)), 4), eps=1e-6, atol=1e-4)

    y, start = rng.normal(size=(2, 3, 8))
    end, losses = train(start, y, steps)
    for k, value in enumerate(losses[:5]):
        print(k, f"{value:.4f}")
    draw(y, start, end, losses, np.sum(y[:, :2] ** 2) / y.size, output)
    return start, end, y, losses


if __name__ == "__main__":
    main()
