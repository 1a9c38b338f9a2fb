"""Transforms: parameters that obey constraints, as functions of numbers that obey none.

    from tapegrad import transforms

    transforms.log.forward(u)         # exp(u) > 0
    transforms.log.inverse(x)         # log(x)
    transforms.log.log_jacobian(u)    # log |det d forward(u) / d u|, a number: of exp the sum of u

Each is three plain NumPy functions, which run on traced values as well. The last axes are
transformed, those before them count: `simplex` makes k rows of n shares of k x (n - 1) numbers.
What depends on others has no coordinate in the determinant: of shares all but the last one have
one, of triangles the entries in them, of symmetric matrices those on and below the diagonal, and of
correlations those below it.

A density of x becomes one of u by adding the log-Jacobian, as samplers and variational methods
need it. A maximum of the likelihood is the same point in x and in u, and nothing is added.

The formulas are those of the Stan Reference Manual, "Constraint Transforms"; of shares it is the
additive log-ratio of Aitchison (1982), of correlations the partial ones of Lewandowski, Kurowicka
and Joe (2009).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from tapegrad.errors import ArgumentError
from tapegrad.trees import flatten, tree_flatten, tree_unflatten

__all__ = [
    "Above",
    "Below",
    "Between",
    "Transform",
    "Unconstrained",
    "cholesky_factor",
    "correlation",
    "correlation_cholesky",
    "log",
    "logit",
    "ordered",
    "positive_definite",
    "simplex",
]


def __dir__() -> list[str]:
    return __all__


class Transform:
    """What turns unconstrained numbers into constrained ones: a class of one's own has the three
    functions, written with NumPy."""

    def forward(self, u: Any) -> Any:
        """The constrained numbers."""
        raise NotImplementedError

    def inverse(self, x: Any) -> Any:
        """The unconstrained numbers of constrained ones: `inverse(forward(u))` is u."""
        raise NotImplementedError

    def log_jacobian(self, u: Any) -> Any:
        """log |det d forward(u) / d u|, summed over all that is transformed."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_")


@dataclasses.dataclass(frozen=True)
class Above(Transform):
    """Numbers above a bound: bound + exp(u), with the log-Jacobian sum(u)."""

    bound: float = 0.0

    def forward(self, u: Any) -> Any:
        return self.bound + np.exp(u)

    def inverse(self, x: Any) -> Any:
        return np.log(x - self.bound)

    def log_jacobian(self, u: Any) -> Any:
        return np.sum(u)


@dataclasses.dataclass(frozen=True)
class Below(Transform):
    """Numbers below a bound: bound - exp(u), with the log-Jacobian sum(u)."""

    bound: float = 0.0

    def forward(self, u: Any) -> Any:
        return self.bound - np.exp(u)

    def inverse(self, x: Any) -> Any:
        return np.log(self.bound - x)

    def log_jacobian(self, u: Any) -> Any:
        return np.sum(u)


@dataclasses.dataclass(frozen=True)
class Between(Transform):
    """Numbers between two bounds: lower + (upper - lower) / (1 + exp(-u)).

    Where u is large, the result rounds to `upper`; what it keeps of the distance to `lower` is what
    floats near `lower` can say, so bounds of 0 are the finest.
    """

    lower: float = 0.0
    upper: float = 1.0

    def forward(self, u: Any) -> Any:
        return self.lower + (self.upper - self.lower) * special.expit(u)

    def inverse(self, x: Any) -> Any:
        return np.log(x - self.lower) - np.log(self.upper - x)

    def log_jacobian(self, u: Any) -> Any:
        slopes = -np.logaddexp(0.0, u) - np.logaddexp(0.0, -u)
        return np.sum(np.log(self.upper - self.lower) + slopes)


class _Simplex(Transform):
    """n shares that add up to 1, of n - 1 numbers: softmax of these and 0.

    The log-Jacobian is the sum of the logarithms of all n shares.
    """

    def _logs(self, u: Any) -> Any:
        scores = np.concatenate([u, np.zeros((*u.shape[:-1], 1))], -1)
        return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)

    def forward(self, u: Any) -> Any:
        return np.exp(self._logs(u))

    def inverse(self, x: Any) -> Any:
        return np.log(x[..., :-1]) - np.log(x[..., -1:])

    def log_jacobian(self, u: Any) -> Any:
        return np.sum(self._logs(u))


class _Ordered(Transform):
    """Increasing numbers: the first is u[0], each step to the next one exp(u[i])."""

    def forward(self, u: Any) -> Any:
        return np.cumsum(np.concatenate([u[..., :1], np.exp(u[..., 1:])], -1), axis=-1)

    def inverse(self, x: Any) -> Any:
        return np.concatenate([x[..., :1], np.log(np.diff(x))], -1)

    def log_jacobian(self, u: Any) -> Any:
        return np.sum(u[..., 1:])


def _triangle(u: Any, below: int) -> tuple[Any, tuple[np.ndarray, np.ndarray]]:
    """The lower triangular matrix whose entries, row by row, are the last axis, and where they
    are: on the diagonal too, or with `below` 1 below it."""
    count = u.shape[-1]
    size = int((np.sqrt(8 * count + 1) - 1) / 2 + 0.5) + below
    where = np.tril_indices(size, -below)
    if len(where[0]) != count:
        raise ArgumentError(f"{count} numbers don't fill a triangle")
    taken = np.full((size, size), count)
    taken[where] = np.arange(count)
    return np.concatenate([u, np.zeros((*u.shape[:-1], 1))], -1)[..., taken], where


class _CholeskyFactor(Transform):
    """Lower triangular matrices with a positive diagonal: exp(u) on the diagonal, u below it."""

    def forward(self, u: Any) -> Any:
        matrix, _ = _triangle(u, 0)
        diagonal = np.eye(matrix.shape[-1], dtype=bool)
        return np.where(diagonal, np.exp(np.where(diagonal, matrix, 0.0)), matrix)

    def inverse(self, x: Any) -> Any:
        diagonal = np.eye(x.shape[-1], dtype=bool)
        matrix = np.where(diagonal, np.log(np.where(diagonal, x, 1.0)), x)
        return matrix[(..., *np.tril_indices(x.shape[-1]))]

    def log_jacobian(self, u: Any) -> Any:
        return np.sum(self._logs(u))

    def _logs(self, u: Any) -> Any:
        """The logarithms of the diagonal."""
        return np.diagonal(_triangle(u, 0)[0], axis1=-2, axis2=-1)


class _OfFactor(Transform):
    """Matrices L L^T, with L as from the transform that is named behind this."""

    def forward(self, u: Any) -> Any:
        factor = super().forward(u)
        return factor @ np.swapaxes(factor, -1, -2)

    def inverse(self, x: Any) -> Any:
        return super().inverse(np.linalg.cholesky(x))


class _PositiveDefinite(_OfFactor, _CholeskyFactor):
    """Symmetric positive definite matrices: L L^T, with L as from `cholesky_factor`.

    Of L's entries the determinant is 2^n L_11^n L_22^(n-1) ... L_nn, and one more of each for exp.
    """

    def log_jacobian(self, u: Any) -> Any:
        logs = self._logs(u)
        return np.sum(np.log(2.0) + logs * np.arange(logs.shape[-1] + 1, 1, -1))


class _CorrelationCholesky(Transform):
    """Cholesky factors of correlation matrices: tanh(u) are partial correlations z.

        L_ij = z_ij sqrt(r_ij),  L_ii = sqrt(r_ii),  r_ij = (1 - z_i1^2) ... (1 - z_i,j-1^2)

    The log-Jacobian is the sum of log(1 - z_ij^2) + log(r_ij) / 2 below the diagonal.
    """

    def _parts(self, u: Any) -> tuple[Any, Any, Any]:
        """z, log(1 - z^2) and log(r), as matrices, which are 0 where u has no entry."""
        matrix, _ = _triangle(u, 1)
        slopes = 2 * (np.log(2.0) - np.logaddexp(matrix, -matrix))
        slopes = np.where(np.tri(matrix.shape[-1], k=-1, dtype=bool), slopes, 0.0)
        before = np.concatenate([np.zeros_like(slopes[..., :1]), slopes[..., :-1]], -1)
        return np.tanh(matrix), slopes, np.cumsum(before, axis=-1)

    def forward(self, u: Any) -> Any:
        partial, _, rest = self._parts(u)
        return (partial + np.eye(partial.shape[-1])) * np.exp(rest / 2)

    def inverse(self, x: Any) -> Any:
        where = np.tril_indices(x.shape[-1], -1)
        rest = np.cumsum(x[..., ::-1] ** 2, axis=-1)[..., ::-1] - x**2
        return np.arcsinh(x[(..., *where)] / np.sqrt(rest[(..., *where)]))

    def log_jacobian(self, u: Any) -> Any:
        _, slopes, rest = self._parts(u)
        return np.sum(slopes + np.tril(rest, -1) / 2)


class _Correlation(_OfFactor, _CorrelationCholesky):
    """Correlation matrices: L L^T, with L as from `correlation_cholesky`.

    Of L's entries the determinant is L_11^(n-1) L_22^(n-2) ... L_n-1,n-1.
    """

    def log_jacobian(self, u: Any) -> Any:
        _, slopes, rest = self._parts(u)
        powers = np.diag(np.arange(rest.shape[-1] - 1, -1, -1))
        return np.sum(slopes + (np.tri(rest.shape[-1], k=-1) + powers) * rest / 2)


log = Above(0.0)
logit = Between(0.0, 1.0)
simplex = _Simplex()
ordered = _Ordered()
cholesky_factor = _CholeskyFactor()
positive_definite = _PositiveDefinite()
correlation_cholesky = _CorrelationCholesky()
correlation = _Correlation()


class Unconstrained:
    """A tree of parameters as one vector of unconstrained numbers.

        space = Unconstrained({"mean": 0.0, "scale": 1.0}, {"scale": log})
        space.start                  -->  array([0., 0.])
        space.forward(space.start)   -->  {"mean": 0.0, "scale": 1.0}

    A sampler's density of such a vector is `log_density(space.forward(u)) + space.log_jacobian(u)`.

    Parameters
    ----------
    params : a tree of arrays and floats, within their constraints.
    transforms : a transform for all of them, or a dict from the keys, positions or names of fields
        of the tree to transforms, or to such dicts. What it doesn't name is unconstrained.

    Attributes
    ----------
    start : float64[n], the vector of `params`.
    names : what the numbers of the tree are called: `scale`, `w[0]`.

    Raises
    ------
    ArgumentError : a transform is of no parameter, or a parameter isn't in its range.
    """

    def __init__(self, params: Any, transforms: Any = None) -> None:
        self._given = params, transforms
        self.paths, leaves, self._structure = tree_flatten(params, paths=True)
        for leaf, path in zip(leaves, self.paths, strict=True):
            if np.asarray(leaf).dtype.kind not in "fiu":
                raise ArgumentError(f"{''.join(_names(path))} is {leaf!r}, and not a real number")
        leaves = [np.asarray(leaf, float) for leaf in leaves]
        self.names = [
            name
            for path, leaf in zip(self.paths, leaves, strict=True)
            for name in _names(path, leaf)
        ]
        self.transforms = at_paths(transforms, self.paths, "transforms")
        parts = [
            leaf if transform is None else _inverse(transform, leaf, "".join(_names(path)))
            for transform, leaf, path in zip(self.transforms, leaves, self.paths, strict=True)
        ]
        self.start, self._back = flatten(parts)
        self._as_they_are = flatten(tree_unflatten(self._structure, leaves))[1]

    def __reduce__(self) -> Any:
        return Unconstrained, self._given

    def form(self) -> tuple[Any, ...]:
        """What vectors of this size mean: alike for spaces that do the same with them."""
        shapes = tuple(np.shape(part) for part in self._back(self.start))
        return self._structure, shapes, tuple(map(_by_value, self.transforms))

    def parts(self, u: Any) -> list[Any]:
        """The unconstrained numbers of each leaf."""
        return self._back(u)

    def forward(self, u: Any) -> Any:
        """The tree of a vector."""
        pairs = zip(self.transforms, self._back(u), strict=True)
        leaves = [part if known is None else known.forward(part) for known, part in pairs]
        return tree_unflatten(self._structure, leaves)

    def flat(self, u: Any) -> Any:
        """All numbers of the tree of a vector."""
        return flatten(self.forward(u))[0]

    def tree(self, numbers: Any) -> Any:
        """The tree whose numbers, as they are, are in a vector."""
        return self._as_they_are(numbers)

    def log_jacobian(self, u: Any) -> Any:
        """The sum of the transforms' log-Jacobians at a vector."""
        pairs = zip(self.transforms, self._back(u), strict=True)
        return sum((known.log_jacobian(part) for known, part in pairs if known is not None), 0.0)


def _by_value(transform: Any) -> Any:
    """A transform with numbers for its bounds, or which object another one is."""
    numbers = type(transform) in (Above, Below, Between) and vars(transform).values()
    return transform if numbers and all(map(np.isscalar, numbers)) else id(transform)


def _names(path: Sequence[Any], leaf: Any = 0.0) -> list[str]:
    """What the numbers at a path are called."""
    name = ".".join(map(str, path)) or "x"
    where = np.ndindex(*np.shape(leaf))
    return [f"{name}[{', '.join(map(str, index))}]" if index else name for index in where]


def _inverse(transform: Any, leaf: np.ndarray, name: str) -> Any:
    """The unconstrained numbers of a parameter that must be in the range of its transform."""
    if not hasattr(transform, "inverse"):
        raise ArgumentError(
            f"the transform of {name} is {transform!r}, which has no inverse. Of the parts of a "
            "list or tuple a dict says it, by their positions: {0: transform}"
        )
    try:
        with np.errstate(all="ignore"):
            found = transform.inverse(leaf)
            again = transform.forward(found)
    except np.linalg.LinAlgError:
        again = found = np.array(np.nan)
    if not np.isfinite(found).all() or not np.allclose(again, leaf, 1e-6, 1e-9):
        raise ArgumentError(f"{name} is {leaf}, which isn't in the range of {transform!r}")
    return found


def at_paths(given: Any, paths: Sequence[Any], what: str) -> list[Any]:
    """What a dict of dicts says about each path of a tree, or None: it may name parts of it."""
    found: list[Any] = [None] * len(paths)
    for start, value in _entries(given):
        hit = [k for k, path in enumerate(paths) if tuple(path[: len(start)]) == start]
        if not hit:
            names = ", ".join("".join(_names(path)) for path in paths)
            raise ArgumentError(f"{what} has {_names(start)[0]}, and the parameters are {names}")
        for k in hit:
            found[k] = value
    return found


def _entries(given: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(given, Mapping):
        for key, value in given.items():
            yield from _entries(value, (*path, key))
    elif given is not None:
        yield path, given
