"""A Jacobian J as a pair of products, with vectors of all elements of the arguments and of the
value.

The columns of J belong to real and complex numbers. The maps at a point are linear over the reals:
the tangent of a real number is real, and its cotangent is the real part of the one that it would
have as a complex number. Products with complex vectors are composed of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.trees import unflatten
from tapegrad.differentiate.seeds import blocks
from tapegrad.errors import GradientError


@dataclass(frozen=True)
class Side:
    """The leaves of the arguments, or of the value: None for leaves that aren't part of J."""

    leaves: Sequence[Any]
    structure: Any

    @property
    def known(self) -> list[Any]:
        """The leaves that are part of J."""
        return [x for x in self.leaves if x is not None]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [np.shape(x) for x in self.known]

    @property
    def is_complex(self) -> list[bool]:
        return [np.iscomplexobj(x) for x in self.known]

    def cut(self, vector: Any) -> list[Any]:
        """The part of a vector for each leaf."""
        places = zip(blocks(self.shapes), self.shapes, strict=True)
        return [vector[start : start + size].reshape(shape) for (start, size), shape in places]

    def joined(self, parts: Sequence[Any]) -> Any:
        return np.concatenate([np.ravel(x) for x in parts]) if parts else np.zeros(0)

    def tree(self, parts: Sequence[Any]) -> Any:
        given = iter(parts)
        return unflatten(self.structure, [None if x is None else next(given) for x in self.leaves])

    def parts(self, tree: Any) -> list[Any]:
        """The inverse of `tree`."""
        found = self.structure.flatten_up_to(tree)
        return [y for x, y in zip(self.leaves, found, strict=True) if x is not None]

    def real(self, parts: Sequence[Any]) -> list[Any]:
        """The parts, with real parts taken for real leaves."""
        pairs = zip(parts, self.is_complex, strict=True)
        return [x if yes else np.real(x) for x, yes in pairs]


@dataclass(frozen=True)
class Products:
    """J v and J^H w, from the maps of tangents and cotangents."""

    ins: Side
    outs: Side
    push: Callable[..., Any]
    pull: Callable[..., Any]

    def matvec(self, vector: Any) -> Any:
        """J v = J Re v + i J Im v, in the columns of real numbers."""
        v = self.ins.cut(np.ravel(vector))
        found = self._pushed(self.ins.real(v))
        if np.iscomplexobj(vector) and not all(self.ins.is_complex):
            pairs = zip(v, self.ins.is_complex, strict=True)
            found = found + 1j * self._pushed([0.0 * x if yes else np.imag(x) for x, yes in pairs])
        return found

    def rmatvec(self, vector: Any) -> Any:
        """J^H w = conj(J^T conj w). In the rows of real numbers, J^T w = Re(J^T w) + i Re(J^T w'),
        where w' is -i w in the columns of complex numbers, and Im w in those of real ones."""
        w = self.outs.cut(np.conj(np.ravel(vector)))
        found = self._pulled(self.outs.real(w))
        has_complex = np.iscomplexobj(vector) or any(self.outs.is_complex)
        if has_complex and not all(self.ins.is_complex):
            pairs = zip(w, self.outs.is_complex, strict=True)
            turned = self._pulled([-1j * x if yes else np.imag(x) for x, yes in pairs])
            each = zip(found, turned, self.ins.is_complex, strict=True)
            found = [x if yes else x + 1j * y for x, y, yes in each]
        return np.conj(self.ins.joined(found))

    def _pushed(self, parts: Sequence[Any]) -> Any:
        found = self.push(*self.ins.tree(parts))
        return self.outs.joined(self.outs.parts(found))

    def _pulled(self, parts: Sequence[Any]) -> list[Any]:
        return self.ins.parts(self.pull(self.outs.tree(parts)))

    def check_holomorphic(self, label: str) -> None:
        """Raise a GradientError if J isn't linear over the complex numbers. It is linear if J (i v)
        = i J v for a single v that is unrelated to J."""
        if not any(self.ins.is_complex):
            return
        pairs = zip(self.ins.known, self.ins.is_complex, strict=True)
        v = [_any_direction(x) if yes else np.zeros(np.shape(x)) for x, yes in pairs]
        iv = [1j * x if np.iscomplexobj(x) else x for x in v]
        once, turned = self._pushed(v), self._pushed(iv)
        size = np.max(np.abs(once), initial=0.0) + np.max(np.abs(turned), initial=0.0)
        if np.any(np.abs(turned - 1j * once) > size * np.finfo(once.dtype).eps ** 0.5):
            raise GradientError(
                f"{label}: it has complex arguments, and isn't holomorphic there: what it gives "
                "changes by z and by conj(z), or is real, so its derivative isn't one complex "
                "matrix. Pass real and imaginary parts as arguments, lambda x, y: f(x + 1j * y)"
            )


def _any_direction(x: Any) -> Any:
    """Complex numbers of modulus 1, without a pattern."""
    numbers = np.arange(1.0, 1.0 + np.size(x))
    dtype = np.result_type(x, np.complex64)
    return np.exp(1j * np.sqrt(2.0) * numbers**2).reshape(np.shape(x)).astype(dtype)
