"""Matrix products by SciPy's BLAS, called without copies."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from tapegrad.emit.support.arrays import BYTE, INT

_BLAS = {types.float64: "tapegrad_dgemm", types.float32: "tapegrad_sgemm"}  # see emit.linking


@intrinsic
def matmul(typingctx: Any, x: Any, y: Any, out: Any) -> Any:
    """out = x @ y for matrices; x and y may be transposes of row-major ones."""

    def flag(matrix: Any) -> tuple[str, int]:
        (rows, columns), (down, along) = matrix.shape, matrix.strides
        if along == 1 and (rows == 1 or down >= columns):
            return "N", max(down, columns)
        return "T", max(along, rows)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lltype = context.get_data_type(out.dtype)
        pointer, integer, char = lltype.as_pointer(), INT.as_pointer(), BYTE.as_pointer()
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(
                ir.VoidType(),
                [char, char, integer, integer, integer, pointer, pointer, integer, pointer, integer,
                 pointer, pointer, integer],
            ),
            _BLAS[out.dtype],
        )  # fmt: skip

        def number(value: int) -> Any:
            return cgutils.alloca_once_value(builder, INT(value))

        def letter(value: str) -> Any:
            return cgutils.alloca_once_value(builder, BYTE(ord(value)))

        def real(value: float) -> Any:
            return cgutils.alloca_once_value(builder, ir.Constant(lltype, value))

        # BLAS counts columns first, so it is asked for out.T = y.T @ x.T.
        (m, k), n = x.shape, y.shape[1]
        (flag_x, lead_x), (flag_y, lead_y) = flag(x), flag(y)
        builder.call(
            function,
            [letter(flag_y), letter(flag_x), number(n), number(m), number(k), real(1.0), args[1],
             number(lead_y), args[0], number(lead_x), real(0.0), args[2], number(out.strides[0])],
        )  # fmt: skip
        return context.get_dummy_value()

    return signature(types.none, x, y, out), codegen
