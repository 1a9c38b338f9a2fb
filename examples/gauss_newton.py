"""Where a picture was bent: a field of shifts is fitted to two pictures by Gauss-Newton steps.

The residuals are the differences of the pictures after the shift, and how unevenly neighbours are
shifted. Their Jacobian is a linear operator: LSMR asks for products with it and with its transpose,
and no matrix of 16,000 by 8,000 is made.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter
from scipy.sparse.linalg import lsmr

from tapegrad import as_linear_operator


def sampled(picture, row, column):
    """The picture between its points, by bilinear interpolation."""
    n, m = picture.shape
    row, column = np.clip(row, 0, n - 1.001), np.clip(column, 0, m - 1.001)
    i, j = np.floor(row).astype(int), np.floor(column).astype(int)
    a, b = row - i, column - j
    above = (1 - b) * picture[i, j] + b * picture[i, j + 1]
    below = (1 - b) * picture[i + 1, j] + b * picture[i + 1, j + 1]
    return (1 - a) * above + a * below


def residuals(shift, first, second, stiffness):
    """`shift` has for each point by how much it is moved, down and to the right."""
    row, column = np.mgrid[: first.shape[0], : first.shape[1]]
    moved = sampled(second, row + shift[0], column + shift[1])
    return moved - first, stiffness * np.diff(shift, axis=1), stiffness * np.diff(shift, axis=2)


def flat(parts):
    return np.concatenate([part.ravel() for part in parts])


def pictures(n, rng):
    """A picture, the same one bent, and by how much."""
    first = gaussian_filter(rng.normal(size=(n, n)), n / 20, mode="wrap") * n / 5
    row, column = np.mgrid[:n, :n]
    swirl = np.exp(-(((row - n / 2) ** 2 + (column - n / 2) ** 2) / (n / 4) ** 2))
    truth = 0.08 * np.array([-(column - n / 2) * swirl, (row - n / 2) * swirl])
    return sampled(first, row - truth[0], column - truth[1]), first, -truth


def draw(first, second, shift, output):
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    n = len(first)
    grid = np.arange(0, n, max(1, n // 16))
    left.imshow(first, cmap="gray")
    left.set_title("A picture")
    middle.imshow(second, cmap="gray")
    middle.set_title("Before it was bent")
    right.imshow(first, cmap="gray", alpha=0.4)
    down, across = shift[:, grid[:, None], grid]
    right.quiver(
        grid, grid, across, down, angles="xy", scale_units="xy", scale=0.4, color="tab:red"
    )
    right.set_title("The shifts found, enlarged")
    for axes in (left, middle, right):
        axes.set(xticks=[], yticks=[])
    figure.savefig(output, dpi=90)


def main(output=Path("gauss_newton.png"), n=64, steps=8, stiffness=0.05):
    """Fit, and draw; returns the error of the shifts, relative to their size, before and after."""
    first, second, truth = pictures(n, np.random.default_rng(2))
    shift = np.zeros((2, n, n))
    for step in range(steps):
        left = residuals(shift, first, second, stiffness)
        jacobian = as_linear_operator(lambda s: residuals(s, first, second, stiffness), shift)
        change = lsmr(jacobian, -flat(left), maxiter=100)[0]
        shift = shift + change.reshape(shift.shape)
        print(f"step {step}: half the sum of squares {0.5 * np.sum(flat(left) ** 2):.4f}")
    error = np.linalg.norm(shift - truth) / np.linalg.norm(truth)
    print(f"error of the shifts: {error:.0%}")
    draw(first, second, shift, output)
    return error


if __name__ == "__main__":
    main()
