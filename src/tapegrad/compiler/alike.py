"""Programs that are alike but for the lengths of axes, of which one was compiled before.

    loss(w, X[64, 20])     compiled for 64 rows
    loss(w, X[100, 20])    compiled for any number of rows, beside the first
    loss(w, X[81, 20])     nothing left to compile

What two such programs have in common becomes a template (`backends/cpu/templates.py`). Of each kind
some are kept, in the compiler's memory and on disk, and a program is compiled beside one of them.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from typing import Any

from tapegrad.backends.cpu import kernel_cache
from tapegrad.compiler import disk, kept
from tapegrad.compiler.disk import digest
from tapegrad.compiler.key import kernel_key
from tapegrad.compiler.packed import Packed, dumped, loaded, opaque_of
from tapegrad.core.handlers import let_through
from tapegrad.ir.tape import Literal, Tape, Var
from tapegrad.primitives.base import Elementwise, Parametric, Primitive
from tapegrad.schedule.lengths import varied

LONG = 2000  # calls of a program: to schedule two takes as long as to compile one
MOST = 8  # that are kept of a kind
TRIED = 3  # beside which a program is compiled, until it has their loops
KIND = "kind"


class Kind:
    """What a program has in common with those that are alike but for lengths: some of them are
    kept, of which no two have the same loops."""

    def __init__(self, packed: Packed, tape: Tape) -> None:
        self._packed, self._tape, self._size = packed, tape, _size(tape)
        self._known: list[tuple[float, bytes]] = []
        self._key: Any = None
        if len(tape.calls) > LONG or opaque_of(packed.primitives):
            return
        self._key = KIND, digest("\n".join(_described(tape)).encode()), None
        kept_on_disk = disk.location() is not None
        self._name = kept.named(kernel_key(self._key)) if kept_on_disk else None
        content = kernel_cache.kernels.get(self._key) or kept.find(self._name)
        if content is not None:
            self._known = pickle.loads(content)

    def others(self) -> Iterator[Tape]:
        """Programs for other lengths, those of the next size first."""
        nearest = sorted(self._known, key=lambda one: abs(one[0] - self._size))
        for _, content in nearest[:TRIED]:
            other = loaded(content).unpack()
            if varied(self._tape, other):
                yield other

    def keep(self) -> None:
        """Have later programs compiled beside this one."""
        if self._key is None or any(size == self._size for size, _ in self._known):
            return
        try:
            content = dumped(self._packed)
        except Exception as error:  # it refers to what only this process knows
            let_through(error)
            return
        content = pickle.dumps([*self._known, (self._size, content)][-MOST:])
        kernel_cache.kernels.add({self._key: content})
        kept.keep(self._name, content)


def _size(tape: Tape) -> float:
    """The logarithm of how many numbers a program takes."""
    return math.log(sum(math.prod(var.shape) for var in tape.inputs) or 1)


def _described(tape: Tape) -> Iterator[str]:
    """All of a tape that lengths don't change."""
    numbers: dict[Var, int] = {}

    def defined(var: Var) -> str:
        numbers[var] = len(numbers)
        return f"{var.dtype.str}{len(var.shape)}{'*' * var.aval.weak}"

    def read(x: Any) -> str:
        return x.dtype.str if isinstance(x, Literal) else str(numbers[x])

    yield " ".join(map(defined, tape.inputs))
    for call in tape.calls:
        operands = " ".join(map(read, call.operands))
        yield f"{_name(call.primitive)} {operands} : {' '.join(map(defined, call.outs))}"
        for inner in call.primitive.tapes:
            yield from _described(inner)
    yield " ".join([read(guard.operand) for guard in tape.guards])
    yield " ".join(map(read, tape.outputs))


def _name(primitive: Primitive) -> str:
    if isinstance(primitive, Elementwise):
        return str(primitive.name)
    kind = type(primitive)
    words = primitive.parameters() if isinstance(primitive, Parametric) else ()
    said = [f"{name}={x}" for name, x in words if type(x) in (str, bool)]
    return f"{kind.__module__}.{kind.__qualname__}<{','.join(said)}>"
