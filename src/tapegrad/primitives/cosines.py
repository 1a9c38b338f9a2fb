"""Discrete cosine and sine transforms, computed by SciPy between kernels.

Without a `norm` their matrices are, for n numbers (M. Frigo and S. Johnson, "The design and
implementation of FFTW3", 2005, and FFTW's manual, 4.8.3),

    cosines                                    sines
    1  w_j cos(pi j k / (n - 1))               2 sin(pi (j + 1) (k + 1) / (n + 1))
    2  2 cos(pi (j + 1/2) k / n)               2 sin(pi (j + 1/2) (k + 1) / n)
    3  w_j cos(pi j (k + 1/2) / n)             w_j sin(pi (j + 1) (k + 1/2) / n)
    4  2 cos(pi (j + 1/2) (k + 1/2) / n)       2 sin(pi (j + 1/2) (k + 1/2) / n)

where w_j is 1 at an end of the input that has no mirror image, and 2 elsewhere. For cosines that
end is the first element, for type 1 the last one too; for sines it is the last. So the transpose of
type 2 is type 3, and the transpose of another type is the type itself, up to a factor at these
ends. Orthogonal transforms have no such factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.values import OWN
from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.complexes import WHOLES
from tapegrad.primitives.kinds import AlongAxes, Library, Linear
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.views import GetItem

OTHER = {1: 1, 2: 3, 3: 2, 4: 4}  # the type of the inverse, and of the transpose


@parametric
class Cosines(AlongAxes, Linear, Library):
    """The transform of real numbers along `axes`, by cosines or `sines`. `norm` divides it, as in
    SciPy. If `orthogonal`, the ends are scaled by roots of 2."""

    sines: bool
    type: int
    axes: tuple[int, ...]
    norm: str
    orthogonal: bool

    name = "cosines"
    memory = OWN

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        least = 2 if self.type == 1 and not self.sines else 1
        if x.dtype not in WHOLES or any(x.shape[a] < least for a in self.axes):
            raise ValueError(f"transform {self.type} of {x}")
        return x

    def evaluate(self, *xs: Any) -> Any:
        from scipy.fft import dctn, dstn

        transform = dstn if self.sines else dctn
        given: dict[str, Any] = {"norm": self.norm, "orthogonalize": self.orthogonal}
        return np.asarray(transform(xs[0], self.type, None, self.axes, **given), xs[0].dtype)

    def transpose(self, ct: Any, x: Aval) -> Any:
        turned = Cosines(self.sines, OTHER[self.type], self.axes, self.norm, self.orthogonal)
        if self.orthogonal or self.type == 4 or (self.sines and self.type == 1):
            return turned(ct)
        before = {1: 2.0, 2: 2.0, 3: None}[self.type]
        after = {1: 0.5, 2: None, 3: 0.5}[self.type]
        return self._at_ends(turned(self._at_ends(ct, before)), after)

    def _at_ends(self, x: Any, factor: float | None) -> Any:
        """`x` with the ends that have no mirror image multiplied by `factor`, along each axis."""
        for axis in self.axes if factor is not None else ():
            n = int(x.shape[axis])
            first, last = not self.sines, self.sines or self.type == 1
            if n == 1:
                x = x * factor
                continue
            parts = [(0, 1), (1, n - 1), (n - 1, n)]
            scaled = [factor if first else None, None, factor if last else None]
            found = []
            for (start, stop), by in zip(parts, scaled, strict=True):
                if start < stop:
                    index = [Slice(0, k) for k in x.shape]
                    index[axis] = Slice(start, stop - start)
                    part = GetItem(tuple(index))(x)
                    found.append(part if by is None else part * by)
            x = Concatenate(axis)(*found)
        return x
