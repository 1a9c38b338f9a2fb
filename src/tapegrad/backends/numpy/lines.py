"""The lines of a function that plays a tape, and the expressions of values in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegrad.backends.numpy.lives import is_ufunc
from tapegrad.backends.numpy.numbers import (
    FLOAT,
    FLOATS,
    FUNCTIONS,
    INTEGER,
    NO,
    TRUE,
    as_numpys,
    form_of,
    kinds_of,
)
from tapegrad.core.values import same_bits
from tapegrad.ir.tape import Call, Guard, Operand, Tape, Var

INDENT = "    "
AS_FLOAT = "float("  # operators that make a float of any number, also of a step, begin so
ZERO = "0.0"
WIDEST = 120  # characters of a number that is written where it is read, without a line of its own


def owned(x: Any, others: Sequence[Any]) -> Any:
    """`x`, copied if it is a view, not row-major, or one of the `others`."""
    flags = x.flags
    fresh = x.base is None and flags.owndata and flags.c_contiguous
    return x if fresh and all(x is not y for y in others) else np.array(x, order="C")


class Names(dict[Operand, str]):
    """The names of the values of a tape; for numbers also expressions. A short array may have the
    expressions of its elements instead, in row-major order; it gets a name when one is needed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.elements: dict[Operand, list[str]] = {}
        self.wanted: set[Operand] = set()  # short arrays that are read element by element
        self.sums: dict[int, list[str]] = {}  # the elements of sums of parts, added up so far


class Lines:
    """Lines of source, and the values of the global names in them. `run` plays the tapes of
    calls."""

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self.run = run
        self.lines: list[str] = []
        self.known: dict[str, Any] = {
            "array": np.array,
            "int64": np.int64,
            "float64": np.float64,
            "bool_": np.bool_,
            **FUNCTIONS,
        }
        self.literals: dict[tuple[int, bool], str] = {}  # used beside arrays, or numbers
        self.most: dict[str, int] = {}  # trip counts of loops, by their step variables
        self.steps: set[str] = set()  # step variables and other Python integers
        self.count = 0

    def _fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _global(self, value: Any, letter: str = "f") -> str:
        name = self._fresh(letter)
        self.known[name] = value
        return name

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(INDENT * depth + text)

    def _assigned(self, value: str, depth: int) -> str:
        name = self._fresh("v")
        self._line(depth, f"{name} = {value}")
        return name

    def _kept(self, text: str, once: bool, depth: int) -> str:
        """The expression of a number that is read `once`, or its name if it is read more often."""
        is_short = text.isidentifier() or text == ZERO or (once and len(text) < WIDEST)
        return text if is_short else self._assigned(text, depth)

    def _name(self, x: Operand, names: Names, beside: bool = False) -> str:
        """The expression of an operand. A literal `beside` an array is a 0-d array, which NumPy
        converts faster than a number."""
        if isinstance(x, Var):
            return names[x]
        name = self.literals.get((id(x), beside))
        if name is None:
            value = np.array(x.value) if beside else x.value
            value = value.item() if not beside and value.dtype in FLOATS else value
            name = self.literals[id(x), beside] = self._global(value, "k")
        return name

    def _step(self, value: str, depth: int) -> str:
        """The name of a Python integer."""
        name = self._assigned(value, depth)
        self.steps.add(name)
        return name

    def _numpys(self, name: str) -> str:
        """An expression whose integers are NumPy's."""
        return f"int64({name})" if name in self.steps else name

    def _atom(self, x: Operand, names: Names, depth: int) -> str:
        """The name of an operand; an expression is assigned to a name first."""
        name = self._name(x, names)
        if isinstance(x, Var) and not name.isidentifier():
            name = names[x] = self._assigned(name, depth)
        return name

    def _number(self, call: Call, names: Names, depth: int) -> str:
        """An expression of operators for a scalar computed from scalars; "" if there is none. An
        operand that occurs more than once in it gets a name."""
        kinds = kinds_of(call)
        form, often = (
            form_of(call.primitive, len(call.operands), kinds == TRUE) if kinds else ("", NO)
        )
        is_made = call.primitive.name == "astype" and call.outs[0].aval.dtype == INTEGER
        if is_made and kinds == TRUE:
            return self._step(f"int({self._name(call.operands[0], names)})", depth)
        if not form:
            return ""
        for k in often:
            self._atom(call.operands[k], names, depth)
        given = [self._name(x, names) for x in call.operands]
        # With Python integers alone, the operator would return a Python integer.
        is_pythons = " if " in form or self.steps.issuperset(given)
        if call.outs[0].aval.dtype == INTEGER and is_pythons:
            given = list(map(self._numpys, given))
        text: str = form.format(*given)
        if text.isidentifier():
            return text
        is_number = call.outs[0].aval.dtype != FLOAT or kinds <= FLOATS or form.startswith(AS_FLOAT)
        return f"({text})" if is_number else f"float({text})"

    def _check(self, guards: Sequence[Guard], names: Names, depth: int) -> None:
        for guard in guards:
            name = self._name(guard.operand, names)
            if guard.expected.dtype.kind == "b":
                broken = f"not {name}" if guard.expected.value else name
            else:
                value = as_numpys(self._numpys(name), guard.operand.aval)
                broken = f"not {self._global(same_bits)}({value}, {self._global(guard.expected)})"
            self._line(depth, f"if {broken}: raise Broken({self._global(guard)})")

    def _full(self, name: str, call: Call, fill: Any, depth: int) -> None:
        """Write an array like the call's result, with `fill` as every element."""
        make = np.empty if fill else np.zeros
        made = self._global(partial(make, call.out.shape, call.out.dtype))
        self._line(depth, f"{name} = {made}()")
        if fill:
            self._line(depth, f"{name}.fill({self._global(fill)})")

    def _own(self, tape: Tape, given: Sequence[str], outs: Sequence[str], depth: int) -> list[str]:
        """The expressions of the results, which share no memory. For a value that is surely new,
        only its order in memory is checked."""
        made = {
            x
            for c in tape.calls
            if is_ufunc(c.primitive) or c.primitive.memory.owns
            for x in c.outs
        }
        names: list[str] = []
        for x, name in zip(tape.outputs, outs, strict=True):
            if not x.aval.shape:
                names.append(name)
                continue
            if x in made and name not in names:
                flags = self._fresh("v")
                self._line(depth, f"{flags} = {name}.flags")
                near = f"{flags}.c_contiguous and {flags}.owndata"
                self._line(depth, f"if not ({near}): {name} = array({name}, order='C')")
            else:
                others = "".join(f"{y}, " for y in (*given, *names))
                value, name = f"{self._global(owned)}({name}, ({others}))", self._fresh("v")
                self._line(depth, f"{name} = {value}")
            names.append(name)
        return names
