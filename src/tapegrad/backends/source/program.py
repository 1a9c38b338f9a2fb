"""A program: the source of a plan's kernels, and of the driver that calls them."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tapegrad.backends.source.driver import INDENT, OUT_OF_RANGE, Driver, Variable, numpy_name
from tapegrad.backends.source.names import Scope
from tapegrad.core.arrays import BITS, in_kernels, is_half
from tapegrad.core.locks import cached_property
from tapegrad.ir.affine import Index
from tapegrad.ir.allocation import Allocation, Slot
from tapegrad.ir.cells import Cell
from tapegrad.ir.opened import unmarked
from tapegrad.ir.plan import Plan, segments
from tapegrad.ir.steps import PythonCall, Step
from tapegrad.ir.tape import Literal, dtype_name

LINE = 96  # the width of source lines
NUMERAL = re.compile(r"\b(?:[fiu]\d+_m?)?\d[\d_.]*(?:e-?\d+)?")  # a literal, or a constant


Axes = Sequence[tuple[int, int]]  # each with the number of its input


@dataclass
class Kernel:
    """One compiled function: its name, its parameters, and its source. `rounds` tells for each
    `for` in it, in order, whether it iterates over the rounds of a loop on the tape; `steps` has
    for each line of its body the step of the plan that wrote it. `inside` is the most chunks of a
    loop in its rounds that cores share."""

    name: str
    parameters: list[Cell | Slot | Index]
    names: list[str]
    text: str
    rounds: tuple[bool, ...] = ()
    steps: tuple[Step | None, ...] = ()
    inside: int = 0

    @property
    def chunks(self) -> int:
        """The number of chunks of a parallel kernel, one per call; 0 for other kernels."""
        last = self.parameters[-1] if self.parameters else None
        return last.extent if isinstance(last, Index) else 0

    def type_of(self, k: int) -> tuple[str, tuple[int, ...], np.dtype]:
        """How parameter k is passed: ("scalar", "array" or "chunk", shape, dtype). Python passes
        the number of chunks as the last argument."""
        p = self.parameters[k]
        if isinstance(p, Index):
            return "chunk", (), np.dtype(np.int64)
        if isinstance(p, Slot):
            return "array", (p.size,), in_kernels(p.dtype)
        return ("scalar" if p.scalar else "array"), p.outer, in_kernels(p.dtype)

    def types(self) -> list[tuple[str, tuple[int, ...], np.dtype]]:
        """How the parameters are passed."""
        return [self.type_of(k) for k in range(len(self.parameters))]


@dataclass
class Program:
    """A plan as source: kernels, the allocation of their temporaries, and the driver.

    `nested` are the registers that have no line of their own: their values are computed where they
    are read. All names in it are from `scope`: `names` of cells, slots and calls of NumPy, those of
    kernels and their variables, and `constants`, which are globals of the kernels. `lengths` are
    the trip counts of the tape's loops, and `axes` the axes of inputs that may have any length.
    """

    plan: Plan
    kernels: list[Kernel]
    allocation: Allocation
    scope: Scope
    names: dict[Any, str]
    constants: dict[str, Any] = field(default_factory=dict)
    nested: set[Cell] = field(default_factory=set)
    lengths: frozenset[int] = frozenset()
    axes: Axes = ()

    @cached_property
    def status(self) -> str:
        """The name of the variable that holds what a kernel returns."""
        return self.scope.fresh("status")

    def constant(self, value: np.generic) -> str:
        """The name of a number that has no literal of its dtype."""
        for name, known in self.constants.items():
            if Literal(known) == Literal(value):
                return name
        text = re.sub(r"\W", "", str(value).replace(".", "_").replace("-", "m"))
        name = self.scope.fresh(f"{dtype_name(value.dtype)}_{text}")
        self.constants[name] = value
        return name

    def width(self, text: str) -> int:
        """The length of an expression. If there are loops or open lengths, digits don't count:
        source for 50 rounds must be the same as for 1000."""
        return len(NUMERAL.sub("0", text) if self.lengths or self.axes else text)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The scratch memory that the kernels need."""
        return self.allocation.slots

    def calls(self) -> list[PythonCall]:
        """The calls of NumPy between the kernels."""
        return [s for s in self.plan.steps if isinstance(s, PythonCall)]

    def driver(self) -> Driver:
        """The driver of this program."""
        checked = self._checked()

        def places(cells: Sequence[Cell]) -> tuple[Variable, ...]:
            return tuple(
                Variable(self.names[c], tuple(map(int, c.outer)), c.dtype, c in checked)
                for c in cells
            )

        return Driver(
            places(self.plan.inputs),
            places(self.plan.outputs),
            tuple((self.names[s], int(s.size), in_kernels(s.dtype)) for s in self.slots),
            tuple((self.names[c], unmarked(c.primitive)) for c in self.calls()),
            tuple(self.driver_lines(self._out_of_range())),
        )

    def _checked(self) -> set[Any]:
        """The inputs whose types kernels check before NumPy is called: the kernels' parameters."""
        kernels = iter(self.kernels)
        found: set[Any] = set()
        for segment in segments(self.plan.steps):
            if isinstance(segment, PythonCall):
                break
            found.update(next(kernels).parameters)
        return {x for x in found if isinstance(x, Cell) and not is_half(x.dtype)}

    def _out_of_range(self) -> dict[int, str]:
        """The error, by status, for numbers out of the range in which sums may be reordered."""
        failures = enumerate(self.plan.failures, start=1)
        return {k: OUT_OF_RANGE for k, failure in failures if failure.kind == "range"}

    def errors(self) -> dict[int, str]:
        """NumPy's errors, by the status that a kernel returns for them."""
        return {k: f.error for k, f in enumerate(self.plan.failures, start=1) if f.error}

    def driver_lines(self, errors: Mapping[int, str] | None = None) -> list[str]:
        """The body of the function that allocates, calls and returns. A kernel's status other than
        0 means that a guard doesn't hold, unless `errors` has an error for it."""
        lines = []
        inputs = [cell for cell in self.plan.inputs if not cell.scalar]
        if over := [cell for cell in self.plan.outputs if cell in inputs]:
            lists = [", ".join([self.names[c] for c in cells]) for cells in (over, inputs)]
            lines.append(f"({lists[0]},) = own([{lists[0]}], [{lists[1]}])")
        for cell in self.plan.outputs:
            if cell not in over:
                made = f"empty({_shape(cell.outer)}, {numpy_name(in_kernels(cell.dtype))})"
                lines.append(f"{self.names[cell]} = {made}")
        kernels = iter(self.kernels)
        for segment in segments(self.plan.steps):
            if isinstance(segment, PythonCall):
                lines += self._python_lines(segment)
            else:
                kernel = next(kernels)
                lines += _called(kernel, self._passed(kernel), errors or {}, self.status)
        return lines

    def _passed(self, kernel: Kernel) -> list[str]:
        """The arguments that a kernel is called with."""
        bits = f".view({numpy_name(BITS)})"
        halves = {cell for cell in self.plan.inputs if is_half(cell.dtype)}
        each = zip(kernel.names, kernel.parameters, strict=True)
        return [name + bits if p in halves else name for name, p in each]

    def _python_lines(self, call: PythonCall) -> list[str]:
        name = self.names[call]
        arguments = []
        for x in call.reads:
            if isinstance(x, Literal):
                value = x.value
                said = f"complex({value.real}, {value.imag})" if x.dtype.kind == "c" else value
                arguments.append(f"{numpy_name(x.dtype)}({said})")
            elif x.scalar:
                arguments.append(f"{numpy_name(x.dtype)}({self.names[x]})")
            else:
                arguments.append(self._whole(x) + ("" if x.shape else "[()]"))
        called = f"{name}({', '.join(arguments)})"
        comment = f"  # {call.src}" if call.src else ""
        targets = [f"{self._whole(out)}[...]" for out in call.outs]
        return [f"{', '.join(targets)} = {called}{comment}"]

    def _whole(self, cell: Cell) -> str:
        """A cell as a NumPy array: a view of scratch memory, for a temporary."""
        root = cell.root
        if root.role == "temporary":
            home = self.allocation.homes[root]
            memory = self.names[home.memory]
            if isinstance(home.memory, Cell):
                memory += ".reshape(-1)"
            end = home.start + math.prod(root.left)
            return f"{memory}[{home.start or ''}:{end}].reshape({_shape(cell.shape)})"
        name = self.names[root]
        return name if cell.shape == root.outer else f"{name}.reshape({_shape(cell.shape)})"


def _called(
    kernel: Kernel, passed: Sequence[str], errors: Mapping[int, str], found: str
) -> list[str]:
    function, arguments = kernel.name, ", ".join(passed)
    if kernel.chunks:
        given = [kernel.name, str(kernel.chunks), *passed[:-1]]
        function, arguments = "parallel", ", ".join(given)
    elif kernel.inside:
        given = [kernel.name, str(kernel.inside), *passed]
        function, arguments = "with_helpers", ", ".join(given)
    call = f"if {function}({arguments}):"
    if len(call) + 4 <= LINE and not errors:
        return [call, f"{INDENT}raise Stale"]
    wrapped = lines_of(arguments, LINE - 8)
    inner = [INDENT + line for line in wrapped]
    lines = [f"{found} = {function}(", *inner, ")"]
    for error in dict.fromkeys(errors.values()):
        statuses = [str(status) for status, other in errors.items() if other == error]
        which = f"== {statuses[0]}" if len(statuses) == 1 else f"in ({', '.join(statuses)})"
        lines += [f"if {found} {which}:", f"{INDENT}raise {error}"]
    return [*lines, f"if {found}:", f"{INDENT}raise Stale"]


def lines_of(listed: str, width: int) -> list[str]:
    """A list of names, wrapped between names."""
    return textwrap.wrap(listed, width, break_long_words=False, break_on_hyphens=False)


def _shape(shape: tuple[int, ...]) -> str:
    return str(tuple(int(n) for n in shape))
