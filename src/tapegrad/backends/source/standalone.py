"""Functions as source: the text of `tape.source`, and the functions that `simplegrad` runs and
saves.

The readable part is the kernels and one function that takes the arguments apart, allocates the
results, calls the kernels and puts the results together. A saved file adds the functions that the
kernels call (`Machine.support`). It needs NumPy, numba and SciPy's BLAS, but not tapegrad.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.backends.host import HOST
from tapegrad.backends.source.arguments import (
    ComputedPart,
    Mark,
    branches,
    is_plain_tree,
    is_tree,
    put_together,
    take_apart,
)
from tapegrad.backends.source.driver import INDENT, numpy_name
from tapegrad.backends.source.driver import result as output
from tapegrad.backends.source.program import Program
from tapegrad.core.arrays import computed_in, in_kernels, is_half
from tapegrad.core.trees import is_number, is_traced
from tapegrad.errors import ArgumentError, UnsupportedError
from tapegrad.ir.cells import Cell
from tapegrad.ir.tape import Tape

_STALE = (
    "this function was traced where something held that doesn't hold for these arguments, so its "
    "result would be wrong. Make it anew with simplegrad for such arguments, or use grad, which "
    "traces again by itself. Assumptions: "
)
INLINE = 16  # captured arrays of up to this many elements are written as lists


@dataclasses.dataclass(frozen=True)
class Text:
    """A function as source: its name, the readable part, and the lines that compile the kernels."""

    name: str
    source: str
    compiling: str
    doc: str

    def whole(self) -> str:
        """The saved file: the readable part, then the functions that it calls."""
        return "\n\n".join(
            [
                f"{_docstring(self.doc)}\n\nfrom __future__ import annotations",
                self.source.strip(),
                "# ---- what the functions above stand on, written by tapegrad:\n"
                "# fixed arrays, scalar functions and BLAS for numba",
                HOST.support(),
                self.compiling.strip() + "\n",
            ]
        )


def text_of(program: Program, tape: Tape) -> Text:
    """The text of a tape's program, as a function of the tape's inputs."""
    name = program.scope.fresh(tape.name)
    names = [program.names[c] for c in program.plan.inputs][: len(tape.free_inputs)]
    examples = [
        np.zeros((), v.dtype).item() if v.aval.weak else np.zeros(v.shape, v.dtype)
        for v in tape.free_inputs
    ]
    result: Any = (lambda outputs: outputs[0]) if len(tape.outputs) == 1 else tuple
    doc = f"The tape {tape.name}."
    return standalone(program, name, names, examples, tape.captured, result, doc)


def standalone(
    program: Program,
    name: str,
    parameters: Sequence[str],
    args: Sequence[Any],
    captured: Sequence[np.ndarray],
    result: Callable[[Sequence[Mark]], Any],
    doc: str,
    written: Sequence[int] = (),
) -> Text:
    """The source of a function of these arguments.

    `result` makes the returned value from placeholders of the outputs. The inputs numbered
    `written` are written to, and may share no memory with others.
    """
    writer = _Writer(program)
    for parameter, arg in zip(parameters, args, strict=True):
        take_apart(parameter, arg, writer.enter)
    errors = program.errors()
    captured_names = [program.names[c] for c in _captured_cells(program, captured)]
    apart = writer.apart(written, captured_names)
    if program.slots:
        names = ", ".join(program.names[s] for s in program.slots)
        writer.lines.append(
            f"({names},) = scratch()" if len(program.slots) == 1 else f"{names} = scratch()"
        )
    body = [*writer.checks, *apart, *writer.lines, *program.driver_lines(errors)]
    failures = "; ".join(f"{k}: {f.what()}" for k, f in enumerate(program.plan.failures, start=1))
    outputs = [Mark(output(program.names[c], c.shape, c.dtype)) for c in program.plan.outputs]
    returned = writer.made(result(outputs))
    lines = [f"def {name}({', '.join(parameters)}):", f"{INDENT}{_docstring(doc)}"]
    lines += [INDENT + line for line in body]
    lines += [INDENT + line for line in writer.endings]
    lines.append(f"{INDENT}return {returned}")
    dtypes = {c.dtype for c in (*program.plan.inputs, *program.plan.outputs)} | writer.halves
    known = sorted(numpy_name(x) for x in dtypes | set(map(in_kernels, dtypes)))
    used = [name for name in known if hasattr(np, name)]
    head = ["import numpy as np", f"from numpy import {', '.join(['empty', *used])}"]
    head += [f"from ml_dtypes import {name}" for name in known if name not in used]
    if errors:
        head.append("from numpy.linalg import LinAlgError")
    head += dict.fromkeys(writer.imports)
    if captured or writer.arrays:
        head.append("")
    head += [f"{name} = {_array_text(array)}" for name, array in writer.arrays.items()]
    for cell, array in zip(_captured_cells(program, captured), captured, strict=True):
        head.append(f"{program.names[cell]} = {_array_text(array)}")
    if program.slots:
        sizes = ", ".join(
            f"np.empty({s.size}, np.{in_kernels(s.dtype).name})" for s in program.slots
        )
        comma = "," if len(program.slots) == 1 else ""
        head += ["", "", "def scratch():", f"{INDENT}return {sizes}{comma}"]
    compiling = ["nan, inf = np.nan, np.inf"]
    compiling += [f"{n} = np.{np.dtype(type(v)).name}({v})" for n, v in program.constants.items()]
    compiling += ["", "", "class Stale(ValueError):"]
    compiling += [f'{INDENT}"""The function was traced under assumptions that do not hold here."""']
    compiling += ["", f"{INDENT}def __init__(self):"]
    compiling += [f"{INDENT * 2}super().__init__("]
    compiling += [f"{INDENT * 3}" + repr(_STALE + failures)]
    compiling += [f"{INDENT * 2})", "", ""]
    for kernel in program.kernels:
        types = []
        for k in range(len(kernel.parameters)):
            passed, shape, dtype = kernel.type_of(k)
            types.append(f'("{passed}", {shape}, "{dtype.name}")')
        compiling.append(f"{kernel.name} = compiled(")
        compiling.append(f"{INDENT}{kernel.name},")
        compiling.append(f"{INDENT}[{', '.join(types)}],")
        compiling.append(")")
    parts = ["\n".join(head), *[k.text for k in program.kernels], "\n".join(lines)]
    source = "\n\n\n".join(part.strip() for part in parts)
    return Text(name, source + "\n", "\n".join(compiling), doc)


def _docstring(text: str) -> str:
    """`text` as a docstring, with whatever characters it has."""
    plain = all(c.isprintable() and c not in '"\\' for c in text)
    return f'"""{text}"""' if plain else repr(text)


def refuse_foreign_calls(program: Program) -> None:
    """Raise if a call can only run with tapegrad or the user's program: it can't be saved."""
    for call in program.calls():
        raise UnsupportedError(
            f"{call.primitive} can't be compiled ({call.src}), so the function can't stand alone. "
            "Use grad, which calls it between the compiled parts"
        )


def _captured_cells(program: Program, captured: Sequence[Any]) -> list[Cell]:
    inputs = program.plan.inputs
    return list(inputs[len(inputs) - len(captured) :])


def _array_text(array: np.ndarray) -> str:
    """An array as an expression: a list of its elements, or its bytes."""
    name = numpy_name(array.dtype)
    name = f"np.{name}" if hasattr(np, name) else name
    if array.ndim == 0:
        return f"{name}({array[()]!r})".replace("np.float64(np.float64", "(np.float64")
    if array.size <= INLINE and np.all(np.isfinite(array)):
        return f"np.array({array.tolist()}, {name})"
    data = base64.b85encode(np.ascontiguousarray(array).tobytes()).decode()
    return (
        f"np.frombuffer(__import__('base64').b85decode({data!r}), {name})"
        f".reshape({array.shape}).copy()"
    )


class _Writer:
    """Writes the lines that take the arguments apart."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs = iter(program.plan.inputs)
        self.lines: list[str] = []
        self.checks: list[str] = []  # of the arguments' structure, before they are taken apart
        self.places: list[str] = []  # the expressions of the inputs
        self.classes: dict[type, str] = {}  # of named tuples and dataclasses
        self.imports: list[str] = []
        self.arrays: dict[str, Any] = {}  # that results are made from
        self.endings: list[str] = []
        self.halves: set[np.dtype] = set()  # half-precision dtypes of the arguments

    def apart(self, written: Sequence[int], captured: Sequence[str]) -> list[str]:
        """Lines that check that the inputs numbered `written` share no memory with another
        array."""
        places = [*self.places, *captured]
        return [
            f"apart({', '.join([places[k], repr(places[k]), *places[:k], *places[k + 1 :]])})"
            for k in written
        ]

    def enter(self, place: str, x: Any) -> str | None:
        """Write the lines for an argument or a part of one. Returns the expression of its parts;
        None for a leaf."""
        if is_tree(x):
            keys = list(x) if isinstance(x, dict) else [*range(len(branches(place, x)))]
            kind = type(x).__qualname__ if is_plain_tree(x) else repr(type(x).__qualname__)
            if not is_plain_tree(x):
                self.classes.setdefault(type(x), f"type({place})")
            self.checks.append(f"parts({place}, {kind}, {keys}, {place!r})")
            return place
        if is_traced(x):
            cell = next(self.inputs)
            self.places.append(place)
            self.lines.append(f"{self.program.names[cell]} = {self._input(place, x, cell)}")
        else:
            self.checks.append(f"static({place}, {x!r}, {place!r})")
        return None

    def made(self, x: Any) -> str:
        """The expression that is returned."""
        text = put_together(x, self._said, self._class)
        return text[1:-1] if type(x) is tuple and len(x) > 1 else text

    def _said(self, x: Any) -> str | None:
        if not isinstance(x, ComputedPart):
            return _said(x)
        names = {name: self.program.scope.fresh(name) for name in x.arrays}
        self.imports.append(x.imported)
        self.arrays |= {names[name]: np.asarray(array) for name, array in x.arrays.items()}
        self.endings += [line.format(**names) for line in x.lines]
        return x.text.format(**names)

    def _class(self, kind: type) -> str:
        if kind not in self.classes:
            raise UnsupportedError(
                f"the result holds a {kind.__name__}, and no argument does: a function that stands "
                "alone doesn't have the class. Return a dict, a list or a tuple. What a pullback "
                "is called with can be an argument: lambda x, ct: vjp(f, x)[1](ct)"
            )
        return self.classes[kind]

    def _input(self, place: str, x: Any, cell: Cell) -> str:
        half = not is_number(x) and is_half(x.dtype)
        self.halves.update({x.dtype} if half else ())
        dtype = numpy_name(x.dtype if half else cell.dtype)
        if not isinstance(x, np.ndarray):
            kind = dtype if isinstance(x, np.generic) else type(x).__name__
            return f"number({place}, {kind}, {place!r})"
        strides = "" if x.flags.c_contiguous else f", {x.strides}"
        taken = f"argument({place}, {cell.shape}, {dtype}, {place!r}{strides})"
        return taken if cell.shape else f"{taken}.item()"


def check_parts(x: Any, where: str) -> None:
    """Raise an ArgumentError for an argument that can't be taken apart without tapegrad."""
    if x is None or is_traced(x) or type(x) in (str, bytes, bool):
        return
    if type(x) is dict and {type(k) for k in x} not in (set(), {str}, {int}):
        raise ArgumentError(
            f"{where} holds a dict whose keys aren't strings, or integers: {list(x)}. A function "
            "that stands alone can't take it apart"
        )
    if not is_tree(x):
        raise ArgumentError(
            f"{where} holds a {type(x).__name__}. A function that stands alone takes arrays, "
            "numbers, strings, booleans and None, and of these dicts, lists, tuples, named tuples "
            "and dataclasses without static fields. Let the function reach it by itself, with "
            "functools.partial"
        )
    for _, _, part in branches("", x):
        check_parts(part, where)


def _said(x: Any) -> str | None:
    """The expression of a part of a result; None for a container of parts."""
    if isinstance(x, Mark):
        return x.text
    if x is None or type(x) in (bool, str, bytes, int, float, complex):  # nan and inf are known
        return repr(x)
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biufc":
        return _array_text(np.asarray(x)) + ("" if isinstance(x, np.ndarray) else "[()]")
    if is_tree(x):
        return None
    raise UnsupportedError(
        f"the result holds a {type(x).__name__}, which a function that stands alone can't make. "
        "It returns arrays and numbers, strings and None, and of these dicts, lists and tuples"
    )


def is_float_leaf(x: Any) -> bool:
    """Whether a leaf has a gradient."""
    return isinstance(x, float) if is_number(x) else computed_in(x.dtype).kind == "f"
