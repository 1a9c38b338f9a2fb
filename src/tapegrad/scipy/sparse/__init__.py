"""Traceable versions of scipy.sparse: its classes and functions with traced elements, and the
operators of its matrices with traced arrays.

A captured matrix is an operand of the tape, as an array is: its elements and its pattern are read
at each call, and its other attributes are guarded.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from scipy import sparse

from tapegrad.extending import any_traced, declare_operands, stands_for
from tapegrad.scipy.sparse import making, matrices

__all__ = ["making", "matrices"]

REFUSED = {"find": "the arrays that the matrix is made of"}

_BINARY = """dot multiply maximum minimum
__matmul__ __rmatmul__ __mul__ __rmul__ __add__ __radd__ __sub__ __rsub__ __truediv__"""


def _declare_methods() -> None:
    """Declare the binary operators of all sparse classes for operands that are traced arrays."""
    seen: set[int] = set()
    base = sparse.csr_array.__mro__
    root: Any = next(kind for kind in base if kind.__name__ == "_spbase")
    kinds = [root, *_below(root)]
    for kind in (*kinds, *{c for k in kinds for c in k.__mro__ if c.__module__[:6] == "scipy."}):
        for name in _BINARY.split():
            own = vars(kind).get(name)
            if type(own) is FunctionType and id(own) not in seen:
                seen.add(id(own))
                _declare_method(kind, name)
    declare_operands(root, matrices.Held, when=any_traced)


def _below(kind: Any) -> list[type]:
    found: list[type] = []
    for one in kind.__subclasses__():
        found += [one, *_below(one)]
    return found


def _declare_method(kind: type, name: str) -> None:
    def method(self: Any, other: Any) -> Any:
        return getattr(matrices.as_sparse(self), name)(other)

    stands_for(kind, name)(method)


_declare_methods()
