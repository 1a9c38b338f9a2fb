"""The order of elements. The results are integers, so nothing here has a derivative. The front end
composes a sort of an argsort and a gather, which has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import parametric
from tapegrad.primitives.kinds import AlongAxis, Library, Routine, Underived


class _Order(Underived, AlongAxis, Library):
    """A function of NumPy whose result is indices."""


@parametric
class ArgSort(_Order):
    """The indices that sort along `axis`; NaN comes last. `stable` keeps ties in their order."""

    axis: int
    stable: bool = False

    name = "argsort"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_dtype(np.intp)

    def evaluate(self, *xs: Any) -> Any:
        return np.argsort(xs[0], self.axis, kind="stable" if self.stable else None)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        kind = ", kind='stable'" if self.stable else ""
        return [f"{outs[0]} = np.argsort({xs[0]}, {self.axis}{kind})"]


@parametric
class ArgPartition(_Order):
    """The indices after which the elements at the positions `kth` are where sorting along `axis`
    would put them, with smaller ones before and larger ones after. The order of the others is
    NumPy's choice."""

    axis: int
    kth: tuple[int, ...]

    name = "argpartition"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_dtype(np.intp)

    def evaluate(self, *xs: Any) -> Any:
        return np.argpartition(xs[0], self.kth, self.axis)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.argpartition({xs[0]}, {self.kth}, {self.axis})"]


@parametric
class SearchSorted(Underived, Routine):
    """The position at which each of the numbers `v` would be inserted into the sorted vector `a`:
    before or after equal elements."""

    right: bool

    name = "searchsorted"
    overwrites = (None,)
    reads = (0, 1)

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        return None if mapped[0] else self(*xs)

    @property
    def kernel(self) -> str:
        return "search_right" if self.right else "search_left"

    def aval(self, *xs: Aval) -> Aval:
        a, v = xs
        if a.ndim != 1:
            raise ValueError(f"searchsorted: {a} isn't a vector")
        return v.with_dtype(np.intp)

    def evaluate(self, *xs: Any) -> Any:
        return np.searchsorted(xs[0], xs[1], "right" if self.right else "left")

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        side = ", 'right'" if self.right else ""
        return [f"{outs[0]} = np.searchsorted({xs[0]}, {xs[1]}{side})"]
