"""Traceable versions of scipy.spatial."""

from __future__ import annotations

import functools
from typing import Any

import scipy.spatial as theirs

from tapegrad.extending import stands_for
from tapegrad.scipy.borrowing import borrow
from tapegrad.scipy.trees import METHODS, Tree, tree, tree_of

HOME = "scipy.spatial"
REFUSED = {
    "ConvexHull Delaunay HalfspaceIntersection SphericalVoronoi Voronoi tsearch": (
        "it on tapegrad.stop_gradient(x) in a function that is declared with tapegrad.primitive, "
        "which returns the numbers of the points that it joins, and compute with x[numbers]"
    ),
    "geometric_slerp": "scipy.spatial.transform.Slerp",
    "Rectangle": "arrays of its bounds",
}


def _declare(kind: Any) -> None:
    """Declare the answers to the constructor of a tree class, and to the methods of trees of plain
    points."""

    stands_for(HOME, kind.__name__)(_made(kind))
    for name in METHODS:
        stands_for(kind, name)(_of_theirs(getattr(Tree, name)))


def _made(kind: Any) -> Any:
    def made(data: Any, *args: Any, **kwargs: Any) -> Any:
        return tree_of(kind, data, *args, **kwargs)

    return made


def _of_theirs(own: Any) -> Any:
    @functools.wraps(own)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return own(tree(self), *args, **kwargs)

    return method


_declare(theirs.cKDTree)
_declare(theirs.KDTree)
borrow(HOME, "distance_matrix minkowski_distance minkowski_distance_p procrustes")
