"""Trees of values that are partly on a tape: arguments and results of users' functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.trees import flatten, is_number, unflatten
from tapegrad.ir.tape import Aval, Literal
from tapegrad.primitives.base import Node
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import Tracer, stand_in


@dataclass(frozen=True, eq=False)
class MixedTree:
    """A tree of values: leaf k is number `at[k]` of those on a tape, or `static[k]`.

    `avals` are the types of those on the tape. `known` holds the values of integers and booleans
    that a trace saw: a rule may use them, at the price of a guard.
    """

    structure: Any
    at: tuple[int | None, ...]
    static: tuple[Any, ...]
    avals: tuple[Aval, ...]
    known: dict[int, Any]

    def fill(self, values: Sequence[Any]) -> Any:
        """The tree with these values for the leaves on the tape."""
        leaves = [
            static if at is None else values[at]
            for at, static in zip(self.at, self.static, strict=True)
        ]
        return unflatten(self.structure, leaves)

    def tracers(self, trace: Trace, nodes: Sequence[Node]) -> Any:
        """The tree with tracers for nodes of a tape that is being differentiated."""
        found = []
        for k, node in enumerate(nodes):
            operand = node.operand
            value = operand.value if isinstance(operand, Literal) else self.known.get(k)
            found.append(stand_in(trace, operand, value, weak=self.avals[k].weak))
        return self.fill(found)

    def plain(self, values: Sequence[Any]) -> list[Any]:
        """Values for `fill`: read-only arrays, and NumPy's scalars."""
        found = []
        for value, aval in zip(values, self.avals, strict=True):
            array = np.asarray(value).view()
            array.flags.writeable = False
            found.append(array.item() if aval.weak else array if aval.shape else array[()])
        return found

    @property
    def constants(self) -> list[Any]:
        """The leaves that aren't on the tape."""
        return [x for x, at in zip(self.static, self.at, strict=True) if at is None]


def mixed_tree(
    structure: Any, leaves: Sequence[Any], on_tape: Sequence[bool], avals: Sequence[Aval]
) -> MixedTree:
    """The tree with these leaves, of which those `on_tape` have the types `avals`."""
    at: list[int | None] = [None] * len(leaves)
    known: dict[int, Any] = {}
    for number, place in enumerate(k for k, yes in enumerate(on_tape) if yes):
        at[place] = number
        aval, value = avals[number], value_of(leaves[place])
        if aval.shape == () and aval.dtype.kind in "iub" and value is not None:
            known[number] = aval.dtype.type(value)
    static = tuple(None if yes else leaf for leaf, yes in zip(leaves, on_tape, strict=True))
    return MixedTree(structure, tuple(at), static, tuple(avals), known)


def value_of(x: Any) -> Any:
    """The value of a tracer, None if unknown; any other object itself."""
    return x._read()[1] if isinstance(x, Tracer) else x


def chosen(entries: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The entries where the mask is true."""
    return [entry for entry, yes in zip(entries, mask, strict=True) if yes]


@dataclass(frozen=True, eq=False)
class PlainTree:
    """A tree of plain values, taken apart; `is_array` marks the leaves that can be on a tape."""

    structure: Any
    leaves: list[Any]
    is_array: list[bool]

    @staticmethod
    def of(tree: Any) -> PlainTree:
        leaves, structure = flatten(tree)
        kinds = (np.ndarray, np.generic, int, float, complex)
        is_array = [isinstance(x, kinds) and not isinstance(x, Tracer) for x in leaves]
        return PlainTree(structure, leaves, is_array)

    @property
    def on_tape(self) -> list[Any]:
        return chosen(self.leaves, self.is_array)

    def without_values(self) -> PlainTree:
        """The tree with None for its arrays, which is enough for `is_like`."""
        leaves = [None if yes else x for x, yes in zip(self.leaves, self.is_array, strict=True)]
        return PlainTree(self.structure, leaves, self.is_array)

    def tree(self) -> MixedTree:
        avals = [aval_of_leaf(x) for x in self.on_tape]
        return mixed_tree(self.structure, self.leaves, self.is_array, avals)

    def is_like(self, other: PlainTree) -> bool:
        """Whether the structure and the leaves that aren't arrays are the same."""
        return (
            self.structure == other.structure
            and self.is_array == other.is_array
            and all(
                array or _same(x, y)
                for x, y, array in zip(self.leaves, other.leaves, self.is_array, strict=True)
            )
        )


def aval_of_leaf(x: Any) -> Aval:
    """The type of a result on the tape; a Python number is weak."""
    array = np.asarray(x)
    return Aval(array.shape, array.dtype, weak=is_number(x))


def _same(x: Any, y: Any) -> bool:
    return x is y or (type(x) is type(y) and bool(x == y))


# The source of a saved value when the rule runs: "input" or "result" k of the call, or "residual"
# k, which is stored for the rule alone.
Where = tuple[str, int]


def sources_of(saved: Sequence[Any], inputs: Sequence[Any], results: Sequence[Any]) -> list[Where]:
    """The source of each of the saved values.

    Derivatives of a rule are propagated through inputs and results of its function. So a saved
    value that is one of them, the same object or variable, is read from there.
    """
    found: list[Where] = []
    residuals = 0
    for x in saved:
        known = [("input", k) for k, y in enumerate(inputs) if x is y]
        known += [("result", k) for k, y in enumerate(results) if x is y]
        if known and not isinstance(x, (int, bool, Literal)):  # small integers are shared objects
            found.append(known[0])
        else:
            found.append(("residual", residuals))
            residuals += 1
    return found
