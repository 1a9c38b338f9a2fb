"""What samples are made of: operands as they are drawn, and references that go through elements or
matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.primitives.base import Primitive, Slice

Reference = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Sample:
    """A primitive applied to operands.

    `smooth`: differences exist here, in both directions and twice. `analytic`: NumPy evaluates it
    on complex operands, so a complex step gives derivatives to the last digit. `reverse` and
    `forward`: it has that rule. `reference` computes the result another way. `factored`: what
    makes operands 1 and 2 of operand 0, its LU factors; they follow it and have no derivatives.
    `narrow` is the primitive for operands in single precision, if that is another one. In the
    operands numbered `fixed` no derivative is known.
    """

    primitive: Primitive
    operands: tuple[Any, ...]
    reference: Reference
    smooth: bool = True
    analytic: bool = False
    reverse: bool = True
    forward: bool = True
    factored: Primitive | None = None
    narrow: Primitive | None = None
    fixed: tuple[int, ...] = ()
    label: str = ""

    def __str__(self) -> str:
        shapes = ",".join(f"{x.dtype}{list(x.shape)}" for x in self.operands)
        return f"{self.primitive.name}-{self.label or shapes}"

    @property
    def floats(self) -> list[int]:
        """The numbers of the operands that have derivatives."""
        found = [k for k, x in enumerate(self.operands) if x.dtype.kind in "fc"]
        return [k for k in found if not (self.factored and k == 1) and k not in self.fixed]

    def stepped(self, xs: Sequence[Any], k: int, step: Any) -> list[Any]:
        """Operands, and what else comes after them, with a step added to one."""
        moved = [x + step if n == k else x for n, x in enumerate(xs)]
        return self.with_factors(moved) if k == 0 else moved

    def with_factors(self, xs: list[Any]) -> list[Any]:
        """The same, with the factors of the first operand."""
        if self.factored:
            xs[1:3] = self.factored.evaluate(xs[0])
        return xs

    def with_operands(self, operands: Sequence[Any], label: str) -> Sample:
        return replace(self, operands=tuple(operands), label=label)


def normal(*shape: int, seed: int = 0) -> Any:
    """Random numbers that stay clear of 0 and of each other, where kinks and ties are."""
    rng = np.random.default_rng([seed, len(shape), *shape])
    size = int(np.prod(shape, dtype=int))
    spread = (np.arange(size) + 0.5 + 0.2 * rng.uniform(-1, 1, size)) / max(size, 1) - 0.5
    values = rng.permutation(3 * spread + np.where(spread < 0, -0.1, 0.1))
    return values.reshape(shape)[()]


def within(low: float, high: float) -> Callable[..., Any]:
    """Random numbers of an open interval."""

    def draw(*shape: int, seed: int = 0) -> Any:
        rng = np.random.default_rng([seed, len(shape), *shape])
        return np.asarray(rng.uniform(low, high, shape))[()]

    return draw


positive = within(0.5, 2.0)


inside = within(-0.9, 0.9)


def each(function: Callable[..., Any], *dtype: Any) -> Reference:
    """A function of Python scalars, over arrays."""

    def over(*xs: Any) -> Any:
        arrays = np.broadcast_arrays(*xs)
        found = [function(*map(scalar, row)) for row in zip(*map(np.ravel, arrays), strict=True)]
        kind = dtype[0] if dtype else np.result_type(*xs)
        return np.array(found, kind).reshape(arrays[0].shape)

    def scalar(x: Any) -> Any:
        return x.item()

    return over


A, B = normal(3, 4), normal(2, 3, 4)


BACK = (Slice(2, 2, -2), Slice(0, 4))


I = np.array([2, 0, 2, -1])


J = np.array([1, 1, 1, 3])


def regular(*shape: int, seed: int = 0) -> Any:
    """Square matrices that are far from singular, and need their rows swapped."""
    return np.roll(normal(*shape, seed=seed) + 2 * np.eye(shape[-1]), 1, -2)


def definite(*shape: int, seed: int = 0) -> Any:
    """Positive definite matrices in the lower triangle; above it stands something else."""
    x = normal(*shape, seed=seed)
    return np.tril(x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])) + np.triu(x, 1)


def triangular(*shape: int, seed: int = 0) -> Any:
    """Matrices whose lower and upper triangles are both far from singular."""
    return normal(*shape, seed=seed) / 2 + 2 * np.eye(shape[-1])


def each_matrix(f: Callable[..., Any]) -> Reference:
    """A function of matrices over the axes before the last two, one matrix at a time."""

    def over(*xs: Any) -> Any:
        lead = np.broadcast_shapes(*[x.shape[:-2] for x in xs])
        wide = [np.broadcast_to(x, lead + x.shape[-2:]) for x in xs]
        found = [f(*[x[at] for x in wide]) for at in np.ndindex(*lead)]
        if not isinstance(found[0], tuple):
            return np.reshape(found, lead + np.shape(found[0]))
        return tuple(np.reshape(p, lead + np.shape(p[0])) for p in zip(*found, strict=True))

    return over


def each_matrix_of(vectors: int, f: Callable[..., Any]) -> Reference:
    """`each_matrix` for a first operand that is a batch of vectors."""
    over = each_matrix(lambda w, *xs: f(w[:, 0], *xs))
    return lambda w, *xs: over(w[..., None], *xs)
