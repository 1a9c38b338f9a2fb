"""Programs that differ only in the lengths of axes from one compiled before.

    loss(w, X[64, 20])     compiled for 64 rows
    loss(w, X[100, 20])    compiled for any number of rows, beside the first
    loss(w, X[81, 20])     nothing left to compile

The common part of two such programs becomes a template, if the target supports templates. Some
programs of each kind are kept, in the compiler's memory and on disk, and a new one is compiled
beside one of them.

The tape for one row is of another kind, and so is that of a loop that is written differently for
another number of rounds. But they show that the axis varies. So the first program of the next kind
is compiled beside the program for another length, as far as that can be predicted
(`schedule/resized.py`).
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from typing import Any

from tapegrad.backends.host import HOST
from tapegrad.compiler import code_store, disk
from tapegrad.compiler.disk import digest
from tapegrad.compiler.key import kernel_key
from tapegrad.compiler.packed import Packed, dumped, loaded, opaque_of
from tapegrad.core.handlers import let_through
from tapegrad.ir.tape import Aval, Literal, Source, Tape, Var
from tapegrad.primitives.base import Elementwise, Parametric, Primitive
from tapegrad.schedule.lengths import varied
from tapegrad.schedule.resized import resized

MAX_CALLS = 2000  # calls: scheduling two such programs takes as long as compiling one
MAX_PROGRAMS = 8  # programs kept of each kind
CANDIDATES = 3  # programs beside which a new one is compiled, until it has their loops
KIND, AXES = "kind", "axes"


class Kind:
    """The programs that differ from one only in lengths. Some are kept; no two of these have the
    same loops."""

    def __init__(self, packed: Packed, tape: Tape) -> None:
        self._packed, self._tape, self._size = packed, tape, _size(tape)
        self._known: list[tuple[float, bytes]] = []
        self._key: Any = None
        self._axes: list[tuple[int, int]] = []  # axes that vary
        if len(tape.calls) > MAX_CALLS or opaque_of(packed.primitives):
            return
        self._key = KIND, digest("\n".join(_described(tape)).encode()), None
        self._known = _found(self._key) or []
        self._axes = _varying(tape)

    def others(self) -> Iterator[Tape]:
        """Programs for other lengths, nearest size first. Those that differ in all axes known to
        vary come first."""
        nearest = sorted(self._known, key=lambda one: abs(one[0] - self._size))
        partly = []
        for _, content in nearest[:CANDIDATES]:
            other = loaded(content).unpack()
            axes = varied(self._tape, other)
            if axes and {*axes}.issuperset(self._axes):
                yield other
            elif axes:
                partly.append(other)
        for far in (True, False):
            if self._axes and (other := resized(self._tape, self._axes, far)) is not None:
                self.keep()  # the prediction may be wrong; then this program corrects it
                yield other
        yield from partly

    def keep(self) -> None:
        """Keep this program, so that later ones are compiled beside it."""
        if self._key is None or any(size == self._size for size, _ in self._known):
            return
        try:
            content = dumped(self._packed)
        except Exception as error:  # it refers to objects of this process
            let_through(error)
            return
        _keep(self._key, [*self._known, (self._size, content)][-MAX_PROGRAMS:])


def _varying(tape: Tape) -> list[tuple[int, int]]:
    """The input axes that had another length in an earlier program of this function, of any
    kind."""
    types = [_type(x.aval) for x in (*tape.inputs, *tape.outputs)]
    src = next((call.src for call in tape.calls if call.src), Source("", 0))
    words = [tape.name, src.file, src.function, str(len(tape.inputs)), *types]
    key = AXES, digest(" ".join(words).encode()), None
    shapes, axes = [v.shape for v in tape.inputs], set()
    if (known := _found(key)) is not None:
        before, axes = known
        pairs = enumerate(zip(shapes, before, strict=True))
        varied = [(k, a) for k, (x, y) in pairs for a, n in enumerate(x) if n != y[a]]
        if axes.issuperset(varied):
            return sorted(axes)
        shapes, axes = before, axes.union(varied)
    _keep(key, (shapes, axes))
    return sorted(axes)


def _found(key: Any) -> Any:
    """The object kept under this key, or None."""
    content = HOST.objects.get(key) or code_store.find(_name_of(key))
    return None if content is None else pickle.loads(content)


def _keep(key: Any, x: Any) -> None:
    content = pickle.dumps(x)
    HOST.objects.add({key: content})
    code_store.keep(_name_of(key), content)


def _name_of(key: Any) -> str | None:
    return code_store.named(kernel_key(key)) if disk.location() is not None else None


def _type(x: Aval) -> str:
    return f"{x.dtype.str}{len(x.shape)}"


def _size(tape: Tape) -> float:
    """The logarithm of the number of elements that a program takes."""
    return math.log(sum(math.prod(var.shape) for var in tape.inputs) or 1)


def _described(tape: Tape) -> Iterator[str]:
    """A description of all of a tape that doesn't depend on lengths."""
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
