"""Triangles of matrices, and systems with them. Matrices are the last two axes; the axes before
them are a batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import broadcast_shapes, parametric
from tapegrad.primitives.contractions import adjoint, matmul, swapped
from tapegrad.primitives.kinds import Linear, Region, Routine

# Up to ALONE multiplications are done before OpenBLAS's threads have been woken. If other programs
# run, waiting for these threads takes a hundred times as long. `trsm` uses threads from CALLED
# elements of right sides on, `getrs` from two right sides on, however small the matrix.
ALONE, CALLED = 2**15, 1024


def over_batch(f: Callable[..., Any], cores: Sequence[int], *xs: Any) -> Any:
    """Apply `f` to the last `cores[k]` axes of each operand, for every index of the axes before
    them, which broadcast."""
    if all(x.ndim == n for x, n in zip(xs, cores, strict=True)):
        return f(*xs)
    lead = broadcast_shapes(*[x.shape[: x.ndim - n] for x, n in zip(xs, cores, strict=True)])
    size = int(np.prod(lead))
    flat = [
        np.broadcast_to(x, lead + x.shape[x.ndim - n :]).reshape(size, *x.shape[x.ndim - n :])
        for x, n in zip(xs, cores, strict=True)
    ]
    # An empty batch has the shapes and dtypes of a batch of one element.
    found = [f(*each) for each in zip(*flat, strict=True)] or [
        f(*[_identity_like(x) for x in flat])
    ]
    if not isinstance(found[0], tuple):
        return np.stack(found)[:size].reshape(lead + found[0].shape)
    parts = [np.stack(part)[:size] for part in zip(*found, strict=True)]
    return tuple(part.reshape(lead + part.shape[1:]) for part in parts)


def _identity_like(x: Any) -> Any:
    """An element for an empty batch, with ones on its diagonal, so that a system with it can be
    solved."""
    return np.eye(*x.shape[1:], dtype=x.dtype) if x.ndim == 3 else np.ones(x.shape[1:], x.dtype)


def square(name: str, x: Aval) -> Aval:
    """The type `x`, if it is of square matrices; else a ValueError."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{name}: {x} isn't square")
    return x


@parametric
class Triangle(Linear, Region):
    """The elements of a matrix on the diagonal `offset` and below (or above) it; zeros elsewhere.

    Linear, and its own transpose.
    """

    lower: bool
    offset: int = 0

    name = "triangle"
    cores = 2
    of_complex = True

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        function, offset = "tril" if self.lower else "triu", f", {self.offset}" * bool(self.offset)
        return [f"{outs[0]} = np.{function}({xs[0]}{offset})"]

    def evaluate(self, *xs: Any) -> Any:
        return (np.tril if self.lower else np.triu)(xs[0], self.offset)

    def transpose(self, ct: Any, x: Aval) -> Any:
        return self(ct)


lower = Triangle(True)
below = Triangle(True, -1)


def halved(x: Any) -> Any:
    """Murray's Phi: the lower triangle, with half of the diagonal."""
    return (lower(x) + below(x)) * 0.5


def mirrored(x: Any) -> Any:
    """The symmetric matrix with this lower triangle."""
    return lower(x) + swapped(below(x))


def from_triangle(x: Any) -> Any:
    """The symmetric or Hermitian matrix with this lower triangle. A Hermitian matrix gets a real
    diagonal."""
    return halved(x) + adjoint(halved(x)) if x.dtype.kind == "c" else mirrored(x)


def folded(s: Any) -> Any:
    """The transpose of `mirrored`: the lower triangle, with the elements above the diagonal
    added."""
    return lower(s) + below(swapped(s))


@parametric
class TriangularSolve(Routine):
    """The X with T X = B, for a triangle of T; `unit` means ones on its diagonal.

    The rest of T isn't read. With B' = T^-T X', the cotangent of T is the triangle of -B' X^T
    (M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
    differentiation", 2008, 2.3.1).
    """

    lower: bool
    unit: bool = False

    name = "triangular_solve"
    cores = (2, 2)
    of_complex = True
    overwrites = (1,)
    reads = (0,)
    strided = True

    @property
    def kernel(self) -> str:
        unit = "unit_" if self.unit else ""
        return f"solve_{unit}{'lower' if self.lower else 'upper'}"

    def aval(self, *xs: Aval) -> Aval:
        t, b = xs
        if square(self.name, t).shape[-1] != b.shape[-2]:
            raise ValueError(f"triangular_solve: {t} doesn't fit {b}")
        return b.with_shape((*broadcast_shapes(t.shape[:-2], b.shape[:-2]), *b.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._solve, (2, 2), *xs)

    def _solve(self, t: Any, b: Any) -> Any:
        if b.size == 0:
            return np.array(b)
        # BLAS stores by columns, so it solves X.T T.T = B.T.
        return trsm(t.T, b.T, 0, lower=not self.lower, diag=self.unit).T

    def triangle(self, x: Any) -> Any:
        """The part of a matrix that is read."""
        return Triangle(self.lower, (-1 if self.lower else 1) if self.unit else 0)(x)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        t, _ = xs
        ct_b = TriangularSolve(not self.lower, self.unit)(swapped(t), ct)
        return self.triangle(-matmul(ct_b, swapped(out))), ct_b

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        dt, db = ts
        right = None if dt is None else -matmul(self.triangle(dt), out)
        if db is not None:
            right = db if right is None else db + right
        return None if right is None else self(xs[0], right)


def trsm(t: Any, b: Any, axis: int, **how: Any) -> Any:
    """BLAS's triangular solve. It may be split along `axis` of the right sides, so that BLAS keeps
    each part on one thread, where several threads would be of no use."""

    def solve(part: Any) -> Any:
        return routine(1.0, t, part, side=1 - axis, **how)

    routine = fortran("blas", "trsm", b.dtype)
    if b.size < CALLED or len(t) * b.size > ALONE:
        return solve(b)
    parts = -(-b.shape[axis] // ((CALLED - 1) // len(t)))
    return np.concatenate([solve(part) for part in np.array_split(b, parts, axis)], axis)


def fortran(library: str, name: str, dtype: np.dtype) -> Any:
    """The routine of SciPy's BLAS or LAPACK for this dtype."""
    return getattr(_extension(library), LETTERS[dtype.char] + name)


@cache
def _extension(library: str) -> Any:
    """The module with SciPy's BLAS or LAPACK. It is loaded without `scipy.linalg`, unless the
    program has loaded that, which takes longer than a first call."""
    home = None if "scipy.linalg" in sys.modules else find_spec("scipy")
    for folder in (home and home.submodule_search_locations) or ():
        found = PathFinder.find_spec(f"_f{library}", [os.path.join(folder, "linalg")])
        if found is not None and found.loader is not None:
            with suppress(ImportError):  # a library that only SciPy's own import finds
                module = module_from_spec(found)
                found.loader.exec_module(module)
                return module
    return import_module(f"scipy.linalg.{library}")


LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}

solve_lower = TriangularSolve(True)
solve_upper = TriangularSolve(False)


def between(factor: Any, x: Any) -> Any:
    """L^-T X L^-1, for a lower triangle L."""
    half = solve_upper(swapped(factor), x)
    return swapped(solve_upper(swapped(factor), swapped(half)))
