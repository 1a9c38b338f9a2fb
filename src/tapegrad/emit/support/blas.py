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

_LETTERS = {types.float64: "d", types.float32: "s"}


def _symbol(library: str, name: str) -> str:
    """The symbol of a routine of SciPy's BLAS or LAPACK, registered with LLVM at its first use."""
    symbol = f"tapegrad_{name}"
    if binding.address_of_symbol(symbol) is None:
        module = f"scipy.linalg.cython_{library}"
        binding.add_symbol(symbol, get_cython_function_address(module, name))
    return symbol


class Fortran:
    """Calls of BLAS and LAPACK for one dtype, in a function under construction.

    Arguments go by reference: letters, integers and floats become constants in memory, pointers
    are passed as they are.
    """

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self.builder = builder
        self.letter = _LETTERS[dtype]
        self.real = context.get_data_type(dtype)

    def reference(self, value: Any) -> Any:
        """A pointer to a constant: a letter, an integer or a float."""
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

    def call(self, library: str, name: str, *args: Any) -> None:
        """Call a routine, named without the letter of its dtype."""
        given = [x if isinstance(x, ir.Value) else self.reference(x) for x in args]
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
        symbol = _symbol(library, self.letter + name)
        function = cgutils.get_or_insert_function(self.builder.module, kind, symbol)
        self.builder.call(function, given)

    def blas(self, name: str, *args: Any) -> None:
        self.call("blas", name, *args)

    def lapack(self, name: str, *args: Any) -> Any:
        """Call a routine of LAPACK; returns its `info`, which is the last argument."""
        info = cgutils.alloca_once(self.builder, INT)
        self.call("lapack", name, *args, info)
        return self.builder.load(info)


@intrinsic
def matmul(typingctx: Any, x: Any, y: Any, out: Any) -> Any:
    """out = x @ y for matrices; x and y may be transposes of row-major ones."""

    def flag(matrix: Any) -> tuple[str, int]:
        (rows, columns), (down, along) = matrix.shape, matrix.strides
        if along == 1 and (rows == 1 or down >= columns):
            return "N", max(down, columns)
        return "T", max(along, rows)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # BLAS counts columns first, so it is asked for out.T = y.T @ x.T.
        (m, k), n = x.shape, y.shape[1]
        (flag_x, lead_x), (flag_y, lead_y) = flag(x), flag(y)
        Fortran(context, builder, out.dtype).blas(
            "gemm", flag_y, flag_x, n, m, k, 1.0, args[1], lead_y, args[0], lead_x, 0.0, args[2],
            out.strides[0],
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
