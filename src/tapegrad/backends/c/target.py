"""Plain C: a program as one function, which allocates nothing and needs the C library alone.

    int grad_f(const double *w, double x, double *out, double *d_w);

Numbers are passed by value, and arrays as the addresses of their first elements, row-major. Results
are written to the last parameters. The function returns 0, or the number of a guard that doesn't
hold for these arguments. Overflow of integers is undefined, as it is in C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapegrad.backends.c.translation import Translator, number, signature, type_name
from tapegrad.backends.c.words import RESERVED
from tapegrad.backends.source.driver import INDENT
from tapegrad.backends.source.program import Program
from tapegrad.backends.target import Language
from tapegrad.ir.cells import Cell

INCLUDED = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"


class C(Language):
    """The language C99. Loops run serially."""

    name = "c"

    def reserved(self) -> frozenset[str]:
        return RESERVED

    def files(self, program: Program, captured: Sequence[np.ndarray], doc: str) -> dict[str, str]:
        assert not program.calls(), "functions that stand alone call no NumPy"
        helpers: dict[str, str] = {}
        names, inputs = program.names, program.plan.inputs
        free = inputs[: len(inputs) - len(captured)]
        head = _head(program, program.scope.fresh(program.plan.name), free)
        kernels = [Translator(k, program.constants, helpers).text() for k in program.kernels]
        read = {p for kernel in program.kernels for p in kernel.parameters}
        inside = [
            f"static const {type_name(c.dtype)} {names[c]}[{max(x.size, 1)}] = {{{_listed(x)}}};"
            for c, x in zip(inputs[len(free) :], captured, strict=True)
            if c in read
        ]
        inside += [f"static {type_name(s.dtype)} {names[s]}[{s.size}];" for s in program.slots]
        called = [f"{kernel.name}({', '.join(kernel.names)})" for kernel in program.kernels]
        inside.append(f"return {called[0] if called else 0};")  # one kernel: C programs aren't cut
        lines = [f"{head} {{", *[INDENT + x for x in inside], "}", ""]
        about = _about(program, free, doc)
        text = "\n".join([about, INCLUDED, *helpers.values(), *kernels, "\n".join(lines)])
        header = f"{about}\n#include <stdbool.h>\n#include <stdint.h>\n\n{head};\n"
        return {".c": text, ".h": header}


def _head(program: Program, name: str, inputs: Sequence[Cell]) -> str:
    """The function's return type, name and parameters."""
    names = program.names
    taken = [f"{'' if c.scalar else 'const '}{_typed(c)}{names[c]}" for c in inputs]
    taken += [f"{_typed(c)}{names[c]}" for c in program.plan.outputs]
    return signature(f"int {name}", taken)


def _typed(c: Cell) -> str:
    return f"{type_name(c.dtype)} {'' if c.scalar else '*'}"


def _about(program: Program, inputs: Sequence[Cell], doc: str) -> str:
    """A comment: what the function is, the shapes of arrays, and the meaning of its status."""
    cells = (*inputs, *program.plan.outputs)
    lines = [doc, *[f"{program.names[c]}: {c.dtype}{[*c.outer]}" for c in cells]]
    failures = enumerate(program.plan.failures, start=1)
    lines += [f"returns {k} if this doesn't hold: {failure.what()}" for k, failure in failures]
    return "/* " + "\n   ".join(lines).replace("*/", "* /") + " */\n"


def _listed(x: np.ndarray) -> str:
    return ", ".join([number(value, x.dtype) for value in x.ravel()]) or "0"
