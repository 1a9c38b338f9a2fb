"""Heat in a plate that conducts better where it is hot: Newton's method with a sparse Jacobian.

    div((1 + u^2) grad u) + q = 0,   u = 0 at the edges

on a grid of a thousand by a thousand points, so a million unknowns. The residual is plain NumPy, a
stencil of slices; which points meet is found from it, and a few passes give all five million
entries of the Jacobian. The linear systems are solved by BiCGSTAB, with a fast sine transform as
the preconditioner.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.fft import dstn, idstn
from scipy.sparse.linalg import LinearOperator, bicgstab

from tapegrad import sparse_jacobian


def residual(u, heat):
    """What is left of the heat's balance at each point, in units of the heat between points."""
    n = heat.shape[0]
    plate = np.zeros((n + 2, n + 2))
    plate[1:-1, 1:-1] = u.reshape(n, n)
    conducts = 1 + plate**2
    down = 0.5 * (conducts[1:] + conducts[:-1]) * (plate[1:] - plate[:-1])
    right = 0.5 * (conducts[:, 1:] + conducts[:, :-1]) * (plate[:, 1:] - plate[:, :-1])
    flow = down[1:, 1:-1] - down[:-1, 1:-1] + right[1:-1, 1:] - right[1:-1, :-1]
    return (flow + heat).ravel()


def poisson(n):
    """The inverse of the five-point stencil, by sine transforms."""
    waves = -4 * np.sin(np.pi * np.arange(1, n + 1) / (2 * (n + 1))) ** 2
    both = waves[:, None] + waves

    def solve(v):
        return idstn(dstn(v.reshape(n, n), type=1) / both, type=1).ravel()

    return solve


def newton(heat, tolerance=1e-8):
    """The temperatures, the norm of the residual at each step, and the last Jacobian."""
    n = heat.shape[0]
    u, norms, matrix = np.zeros(n * n), [], None
    jacobian, inverse = sparse_jacobian(residual), poisson(n)
    while True:
        left = residual(u, heat)
        norms.append(np.linalg.norm(left))
        print(f"step {len(norms) - 1}: residual {norms[-1]:.1e}")
        if norms[-1] <= tolerance * norms[0] or len(norms) > 20:
            return u.reshape(n, n), norms, matrix
        matrix = jacobian(u, heat)
        conducts = 1 + u**2
        near = LinearOperator(matrix.shape, lambda v, k=conducts: inverse(v / k))
        step, _ = bicgstab(matrix, -left, rtol=1e-3, M=near, maxiter=200)
        u = u + step


def draw(u, norms, matrix, output):
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    plate, spy, path = figure.subplots(1, 3)
    figure.colorbar(plate.imshow(u, cmap="inferno", origin="lower"), ax=plate)
    plate.set(title="Temperature", xticks=[], yticks=[])
    n = u.shape[0]
    spy.spy(matrix[: 3 * n, : 3 * n], markersize=60 / n, color="tab:blue")
    spy.set(title="The Jacobian's corner", xticks=[], yticks=[])
    path.semilogy(norms, "o-")
    path.set(title="Newton's steps", xlabel="step", ylabel="residual")
    figure.savefig(output, dpi=90)


def main(output=Path("nonlinear_diffusion.png"), n=1000):
    """Solve, and draw; returns the highest temperature, and the residuals' norms."""
    y, x = np.meshgrid(*2 * [np.linspace(0, 1, n)], indexing="ij")
    sources = np.exp(-((x - 0.3) ** 2 + (y - 0.6) ** 2) / 0.01)
    sources += np.exp(-((x - 0.7) ** 2 + (y - 0.35) ** 2) / 0.03)
    u, norms, matrix = newton(500 * sources / (n + 1) ** 2)
    print(f"{matrix.nnz} entries, of {matrix.shape[0]} unknowns; the hottest has {u.max():.2f}")
    draw(u, norms, matrix, output)
    return u.max(), norms


if __name__ == "__main__":
    main()
