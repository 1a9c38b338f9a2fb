"""Products of matrices, and calls of SciPy's BLAS and LAPACK."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.linking import FORTRAN
from tapegrad.backends.cpu.support.arrays import (
    BYTE,
    INT,
    Intrinsic,
    are_windows,
    is_open,
    word,
)
from tapegrad.backends.cpu.support.packed import packed_product
from tapegrad.backends.cpu.support.unrolled import (
    SMALL_DEPTH,
    SMALL_PRODUCT,
    small_product,
)

_LETTERS = {types.float64: "d", types.float32: "s"}


class Fortran:
    """Calls of BLAS and LAPACK for one dtype, in a function under construction.

    Arguments are passed by reference: letters, integers and floats become constants in memory,
    pointers are passed as they are.
    """

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self.builder = builder
        self.letter = _LETTERS[dtype]
        self.real = context.get_data_type(dtype)

    def reference(self, value: Any) -> Any:
        """A pointer to a constant (a letter, an integer or a float), or to an open extent."""
        if is_open(value):
            extent = word(self.builder, value)
            place = cgutils.alloca_once(self.builder, INT)
            self.builder.store(self.builder.trunc(extent, INT), place)
            return place
        if isinstance(value, str):
            constant = BYTE(ord(value))
        elif isinstance(value, int):
            constant = INT(value)
        else:
            constant = ir.Constant(self.real, value)
        module, name = self.builder.module, f"fortran {constant}"
        if name not in module.globals:
            place = ir.GlobalVariable(module, constant.type, name)
            place.linkage, place.global_constant = "internal", True
            place.initializer = constant
        return module.globals[name]

    def call(self, name: str, *args: Any) -> None:
        """Call a routine, named without the letter of its dtype. The linker knows its address."""
        given = [x if isinstance(x, ir.Value) else self.reference(x) for x in args]
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
        symbol = f"{FORTRAN}{self.letter}{name}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, symbol)
        self.builder.call(function, given)

    def checked(self, name: str, *args: Any) -> Any:
        """Call a routine of LAPACK. Returns its `info`, the last argument."""
        info = cgutils.alloca_once(self.builder, INT)
        self.call(name, *args, info)
        return self.builder.load(info)


@Intrinsic
def matmul(typingctx: Any, x: Any, y: Any, out: Any) -> Any:
    """out = x @ y for matrices."""
    return _product(x, y, out)


@Intrinsic
def add_matmul(typingctx: Any, x: Any, y: Any, out: Any) -> Any:
    """out += x @ y for matrices."""
    return _product(x, y, out, adds=True)


@Intrinsic
def front_matmul(
    typingctx: Any, x: Any, y: Any, out: Any, rows: Any, columns: Any, depth: Any
) -> Any:
    """out = x @ y for the first `rows` and `columns` of out, with the first `depth` terms."""
    return _product(x, y, out, sized=True)


@Intrinsic
def add_front_matmul(
    typingctx: Any, x: Any, y: Any, out: Any, rows: Any, columns: Any, depth: Any
) -> Any:
    """out += x @ y for the first `rows` and `columns` of out, with the first `depth` terms."""
    return _product(x, y, out, adds=True, sized=True)


def _product(x: Any, y: Any, out: Any, adds: bool = False, sized: bool = False) -> Any:
    """The code of out = x @ y, or out += x @ y. If it is `sized`, three further integers are the
    numbers of rows, columns and terms."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (m, k), n = x.shape, y.shape[1]
        open_ = any(map(is_open, (m, k, n, *x.strides, *y.strides, *out.strides)))
        known = not sized and not open_ and not are_windows(y)
        rows = out.strides[1] == 1 or n == 1
        if known and rows and 0 < m * k * n <= SMALL_PRODUCT and k <= SMALL_DEPTH:
            small_product(builder, (x, y, out), args, adds)
        else:
            sizes = args[3:] if sized else None
            packed_product(builder, (x, y, out), args[:3], adds, sizes)
        return context.get_dummy_value()

    given = (x, y, out, *[types.int64] * (3 * sized))
    return signature(types.none, *given), codegen
