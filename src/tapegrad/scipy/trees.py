"""Trees of points: scipy.spatial's KDTree and cKDTree.

The numbers of the nearest points have no derivative: SciPy finds them again at each call. Values
that depend on the points are computed from these numbers:

  d, i = tree.query(x)   -->   d = |x - points[i]|

Lists, whose lengths may differ between calls, are guarded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.extending import Carrier, any_traced, at_line, refusal, seen, unobserved
from tapegrad.extending.arrays import as_operand
from tapegrad.scipy.distance import minkowski_between
from tapegrad.scipy.optimize.roots import example
from tapegrad.scipy.recomputed import constant, decided, remembering, rows
from tapegrad.scipy.solver_calls import stopped


def _floats(x: Any) -> Any:
    x = as_operand(x)
    return x if x.dtype == np.float64 else x.astype(np.float64)


@dataclass(eq=False)
class Tree(Carrier):
    """A tree of traced points, or SciPy's own with traced arguments. `build` makes SciPy's tree of
    the points' values; `known` is the tree of the present values."""

    points: Any
    build: Callable[[Any], Any]
    known: Any

    def __getattr__(self, name: str) -> Any:
        if name in ("n", "m", "leafsize", "boxsize"):
            return getattr(self.known, name)
        raise AttributeError(f"a tree of traced points has no attribute {name!r}")

    @property
    def data(self) -> Any:
        return self.points

    def _asked(self, by: Any, method: str, given: Any, other: Any = None) -> Any:
        """The result of SciPy's method, recorded `by` `constant` or `decided`."""

        def ask(points: Any, others: Any, given: Any) -> Any:
            beside = () if other is None else (other.build(others),)
            return getattr(self.build(points), method)(*beside, *given)

        label = f"{type(self.known).__name__}.{method}"
        return by(label, ask, self.points, () if other is None else other.points, given)

    def query(
        self,
        x: Any,
        k: Any = 1,
        eps: Any = 0.0,
        p: Any = 2.0,
        distance_upper_bound: Any = np.inf,
        workers: Any = 1,
    ) -> Any:
        x = _floats(x)
        near = self._asked(_numbers, "query", (x, k, eps, p, distance_upper_bound, workers))
        x = x if np.ndim(near) < np.ndim(x) else np.expand_dims(x, -2)
        found = rows(self.points, np.minimum(near, self.n - 1))
        if self.boxsize is not None:
            sides = np.broadcast_to(self.boxsize, (self.m,))
            length = np.where(sides > 0, sides, np.inf)
            found = found + sides * stopped(np.round((x - found) / length))
        return np.where(near == self.n, np.inf, minkowski_between(x, found, p)), near

    def query_ball_point(
        self,
        x: Any,
        r: Any,
        p: Any = 2.0,
        eps: Any = 0.0,
        workers: Any = 1,
        return_sorted: Any = None,
        return_length: Any = False,
    ) -> Any:
        given = (_floats(x), r, p, eps, workers, return_sorted, return_length)
        return self._asked(constant if return_length else decided, "query_ball_point", given)

    def query_ball_tree(self, other: Any, r: Any, p: Any = 2.0, eps: Any = 0.0) -> Any:
        return self._asked(decided, "query_ball_tree", (r, p, eps), tree(other))

    def query_pairs(self, r: Any, p: Any = 2.0, eps: Any = 0.0, output_type: Any = "set") -> Any:
        return self._asked(decided, "query_pairs", (r, p, eps, output_type))

    def count_neighbors(
        self, other: Any, r: Any, p: Any = 2.0, weights: Any = None, cumulative: Any = True
    ) -> Any:
        if any_traced([weights]):
            raise refusal(
                f"{type(self.known).__name__}.count_neighbors of traced weights can't be "
                f"traced{at_line()}. Sum the weights of the pairs that query_pairs returns"
            )
        given = (r, p, weights, cumulative)
        return self._asked(constant, "count_neighbors", given, tree(other))

    def sparse_distance_matrix(self, *args: Any, **kwargs: Any) -> Any:
        raise refusal(
            f"{type(self.known).__name__}.sparse_distance_matrix of traced points can't be "
            f"traced{at_line()}. Compute the distances of the pairs that query_pairs returns"
        )


def _numbers(label: str, ask: Callable[..., Any], *args: Any) -> Any:
    return constant(label, lambda *values: ask(*values)[1], *args)


def tree_of(kind: Any, points: Any, *args: Any, **kwargs: Any) -> Tree:
    """A `Tree` for SciPy's class `kind`."""
    build = remembering(lambda points: kind(points, *args, **kwargs))
    points = _floats(points)
    return Tree(points, build, build(example(points)))


def tree(x: Any) -> Tree:
    """x as a `Tree`; one of SciPy's is guarded."""
    return x if isinstance(x, Tree) else Tree(np.asarray(seen(x).data), lambda points: x, x)


METHODS = [name for name, x in vars(Tree).items() if name[0] != "_" and callable(x)]
for _name in METHODS:
    setattr(Tree, _name, unobserved(getattr(Tree, _name)))
