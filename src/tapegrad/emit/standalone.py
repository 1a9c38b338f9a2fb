"""Functions as text: what `tape.source` shows, and what `simplegrad` runs and saves.

The readable part is the kernels and one function that takes the arguments apart, allocates the
results, calls the kernels and puts the results together. A saved file adds `emit.support`, on which
the kernels stand, and needs NumPy, numba and SciPy's BLAS, but not tapegrad.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.emit.driver import INDENT, numpy_name
from tapegrad.emit.program import Program
from tapegrad.ir.plan import Cell
from tapegrad.trees import is_number, is_traced

_STALE = (
    "this function was traced where something held that doesn't hold for these arguments, so its "
    "result would be wrong. Make it anew with simplegrad for such arguments, or use grad, which "
    "traces again by itself. What was taken for granted: "
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
        """The saved file: the readable part, then what it stands on."""
        from tapegrad.emit import support

        return "\n\n".join(
            [
                f'"""{self.doc}"""\n\nfrom __future__ import annotations',
                self.source.strip(),
                "# ---- what the functions above stand on, written by tapegrad:\n"
                "# fixed arrays, scalar functions and BLAS for numba",
                support.text(),
                self.compiling.strip() + "\n",
            ]
        )


def standalone(
    program: Program,
    name: str,
    parameters: Sequence[str],
    args: Sequence[Any],
    hidden: Sequence[np.ndarray],
    result: Callable[[Sequence[str]], str],
    doc: str,
    written: Sequence[int] = (),
) -> Text:
    """The text of a function of these arguments. `result` makes the returned expression from the
    outputs' expressions. The inputs numbered `written` are written to, and may share no memory."""
    writer = _Writer(program)
    for parameter, arg in zip(parameters, args, strict=True):
        writer.unpack(parameter, arg)
    errors = program.errors()
    hidden_names = [program.names[c] for c in _hidden_cells(program, hidden)]
    apart = writer.apart(written, hidden_names)
    body = [*writer.checks, *apart, *writer.lines, *program.driver_lines(errors)]
    failures = "; ".join(f"{k}: {f.what()}" for k, f in enumerate(program.plan.failures, start=1))
    outputs = [program.names[c] + ("" if c.shape else "[()]") for c in program.plan.outputs]
    lines = [f"def {name}({', '.join(parameters)}):", f'{INDENT}"""{doc}"""']
    lines += [INDENT + line for line in body]
    lines.append(f"{INDENT}return {result(outputs)}")
    used = sorted({numpy_name(c.dtype) for c in (*program.plan.inputs, *program.plan.outputs)})
    head = ["import numpy as np", f"from numpy import {', '.join(['empty', *used])}"]
    if errors:
        head.append("from numpy.linalg import LinAlgError")
    if hidden:
        head.append("")
    for cell, array in zip(_hidden_cells(program, hidden), hidden, strict=True):
        head.append(f"{program.names[cell]} = {_array_text(array)}")
    if program.slots:
        sizes = ", ".join(f"np.empty({s.size}, np.{s.dtype.name})" for s in program.slots)
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


def refuse_foreign_calls(program: Program) -> None:
    """A saved function can't hold what only tapegrad, or the user's program, can run."""
    from tapegrad.errors import UnsupportedError

    for call in program.calls():
        raise UnsupportedError(
            f"{call.primitive} can't be compiled ({call.src}), so the function can't stand alone. "
            "Use grad, which calls it between the compiled parts"
        )


def _hidden_cells(program: Program, hidden: Sequence[Any]) -> list[Cell]:
    inputs = program.plan.inputs
    return list(inputs[len(inputs) - len(hidden) :])


def _array_text(array: np.ndarray) -> str:
    """An array as an expression: a list of its elements, or its bytes."""
    name = f"np.{array.dtype.name if array.dtype != np.bool_ else 'bool_'}"
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
        self.places: list[str] = []  # of the inputs

    def apart(self, written: Sequence[int], hidden: Sequence[str]) -> list[str]:
        """Lines that check that what is written to shares no memory with another array."""
        places = [*self.places, *hidden]
        return [
            f"apart({', '.join([places[k], repr(places[k]), *places[:k], *places[k + 1 :]])})"
            for k in written
        ]

    def unpack(self, place: str, x: Any) -> None:
        if isinstance(x, (dict, list)):
            keys = list(x) if isinstance(x, dict) else range(len(x))
            self.checks.append(f"parts({place}, {list(keys)}, {place!r})")
        for child, value in _children(place, x):
            self.unpack(child, value)
        if is_traced(x):
            cell = next(self.inputs)
            name = self.program.names[cell]
            self.places.append(place)
            if cell.shape:
                dtype = numpy_name(cell.dtype)
                self.lines.append(f"{name} = argument({place}, {cell.shape}, {dtype}, {place!r})")
            else:
                kind = {"f": "float", "i": "int", "u": "int", "b": "bool"}[cell.dtype.kind]
                self.lines.append(f"{name} = {kind}({place})")
        elif isinstance(x, (str, bytes, bool, type(None))):
            self.checks.append(f"static({place}, {x!r}, {place!r})")


def _children(place: str, x: Any) -> list[tuple[str, Any]]:
    """The parts of a nested argument, in the order in which tracing takes them."""
    if isinstance(x, dict):
        return [(f"{place}[{k!r}]", x[k]) for k in sorted(x)]
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return [(f"{place}.{k}", getattr(x, k)) for k in x._fields]
    if isinstance(x, (list, tuple)):
        return [(f"{place}[{k}]", v) for k, v in enumerate(x)]
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return [(f"{place}.{f.name}", getattr(x, f.name)) for f in dataclasses.fields(x) if f.init]
    return []


def mirrored(place: str, x: Any, leaves: Any) -> str:
    """The expression of a gradient with the structure of `x`; `leaves` yields its leaves'."""
    if is_traced(x):
        return next(leaves)
    if isinstance(x, dict):
        order = {k: mirrored(f"{place}[{k!r}]", x[k], leaves) for k in sorted(x)}
        return "{" + ", ".join(f"{k!r}: {order[k]}" for k in x) + "}"
    parts = [(c, mirrored(c, v, leaves)) for c, v in _children(place, x)]
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        inner = ", ".join(text for _, text in parts)
        if isinstance(x, list):
            return f"[{inner}]"
        return f"({inner},)" if len(parts) == 1 else f"({inner})"
    if parts:
        fields = ", ".join(f"{c.rpartition('.')[2]}={text}" for c, text in parts)
        return f"type({place})({fields})"
    return "None"


def is_float_leaf(x: Any) -> bool:
    """Whether a leaf has a gradient."""
    return isinstance(x, float) if is_number(x) else x.dtype.kind == "f"
