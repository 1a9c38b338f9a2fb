"""A loss of a thousand rows in memory, and of a billion in chunks: one line is another.

python examples/rows_in_parts.py             up to ten million rows
python examples/rows_in_parts.py 1e9         24 GB of them, which are never all in memory
"""

import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
from matplotlib.figure import Figure

import tapegrad.dask as td

TRUTH = np.array([0.5, -1.0, 0.25])


def loss(w, x, y):
    """How unlikely the answers y are, -1 or 1, at x: logistic regression."""
    return np.sum(np.logaddexp(0.0, -y * (x @ w)))


gradient, hessian = (make(loss, over=("x", "y")) for make in (td.grad, td.hessian))


def rows_of(library, rng, rows, **chunks):
    """Random rows, and answers that follow from them."""
    x = rng.standard_normal((rows, len(TRUTH)), **chunks)
    y = library.where(rng.random(rows, **chunks) < 1 / (1 + library.exp(-x @ TRUTH)), 1.0, -1.0)
    return x, y


def in_memory(rows):
    return rows_of(np, np.random.default_rng(1), rows)


def in_chunks(rows, size=2_000_000):
    return rows_of(da, da.random.default_rng(1), rows, chunks=min(rows, size))


def estimate(rows):
    """What a step of Newton's finds from the truth, and the error that the curvature foresees."""
    x, y = in_memory(rows) if rows <= 1_000 else in_chunks(rows)  # the line
    curvature = hessian(TRUTH, x, y)
    found = TRUTH - np.linalg.solve(curvature, gradient(TRUTH, x, y))
    return found, np.sqrt(np.diag(np.linalg.inv(curvature)))


def draw(sizes, errors, foreseen, output):
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.loglog(sizes, foreseen, color="0.6", label="standard error")
    axes.loglog(sizes, errors, "o", label="error of the estimate")
    axes.axvline(2_000, color="0.8", linestyle=":")
    axes.text(2_200, min(foreseen), "in chunks from here on", fontsize="small")
    axes.set(xlabel="rows", title="Three weights, from a thousand rows on")
    axes.legend()
    figure.savefig(output, dpi=100)


def main(output=Path("rows_in_parts.png"), most=1e7):
    """Estimate, and draw; returns the largest error in standard errors."""
    sizes = [10**k for k in range(3, round(np.log10(most)) + 1)]
    errors, foreseen, worst = [], [], 0.0
    for rows in sizes:
        start = time.perf_counter()
        found, deviations = estimate(rows)
        spent = time.perf_counter() - start
        errors.append(np.max(np.abs(found - TRUTH)))
        foreseen.append(np.max(deviations))
        worst = max(worst, np.max(np.abs(found - TRUTH) / deviations))
        print(f"{rows:13,} rows, {spent:6.2f} s: {np.round(found, 5)}, up to {errors[-1]:.1e} off")
    draw(sizes, errors, foreseen, output)
    return worst


if __name__ == "__main__":
    main(most=float((sys.argv[1:] or ["1e7"])[0]))
