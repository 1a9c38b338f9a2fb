"""Matrix products by SciPy's BLAS, called without copies; and compiling a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils, compiler
from numba.core.typing.templates import signature
from numba.extending import get_cython_function_address, intrinsic

from tapegrad.emit.support.arrays import BYTE, INT, FixedArray

_BLAS_NAMES = {types.float64: "dgemm", types.float32: "sgemm"}


def _blas(kind: Any) -> str:
    """The symbol of SciPy's gemm for this type, registered with LLVM at its first use."""
    name = _BLAS_NAMES[kind]
    symbol = f"tapegrad_{name}"
    if binding.address_of_symbol(symbol) is None:
        binding.add_symbol(symbol, get_cython_function_address("scipy.linalg.cython_blas", name))
    return symbol


def load_blas() -> None:
    """Register all BLAS symbols: code that was compiled earlier calls them by name."""
    for kind in _BLAS_NAMES:
        _blas(kind)


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
            _blas(out.dtype),
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


class Compiler(compiler.CompilerBase):
    """numba's pipeline, told that no two arguments overlap; the caller sees to that."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return [compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)]


def kernel_type(passed: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """numba's type of a parameter that is passed as a "scalar" or as an "array"."""
    element = types.boolean if np.dtype(dtype) == np.bool_ else getattr(types, np.dtype(dtype).name)
    return element if passed == "scalar" else FixedArray(element, tuple(shape))


def compiled(function: Any, parameters: Any) -> Any:
    """The machine code of a kernel, as a plain callable that takes exactly these types."""
    kinds = tuple(kernel_type(*p) for p in parameters)
    options: Any = {
        "pipeline_class": Compiler,
        "error_model": "numpy",
        "nogil": True,
        "_nrt": False,
        "no_cfunc_wrapper": True,
    }
    dispatcher = njit([types.int64(*kinds)], **options)(function)
    result: Any = dispatcher.overloads[kinds]
    return result.entry_point, dispatcher
