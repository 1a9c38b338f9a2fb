"""Operators and functions of numbers. numba defines the types that they take, and the code of a
call."""

from __future__ import annotations

import functools
import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.callconv import create_error_model
from numba.core.registry import cpu_target
from numba.core.typing.context import BaseContext
from numba.core.typing.templates import Registry, builtin_registry

from tapegrad.backends.cpu.support.arrays import Intrinsic


class Typing(BaseContext):
    """The types that operators and functions of numbers take. numba's own table also has methods of
    all its types, for which it loads all its implementations, and with them scipy.linalg."""

    def init(self) -> None:
        self.table = Registry()
        self.table.functions = builtin_registry.functions
        self.table.globals = builtin_registry.globals

    def refresh(self) -> None:
        self.install_registry(self.table)


def _load_numbers() -> None:
    """Load numba's operations on numbers: modules that register them."""
    import numba.core.typing.builtins
    import numba.cpython.numbers  # noqa: F401
    from numba.cpython import mathimpl  # absolute values and powers call it

    TARGET.install_registry(mathimpl.registry)


TYPING = Typing()
_WHOLE = cpu_target.target_context.subtarget(
    error_model=create_error_model("numpy", cpu_target.target_context)  # 1 / 0 is inf
)
TARGET = _WHOLE.subtarget(
    typing_context=TYPING,
    load_additional_registries=_load_numbers,
    compile_internal=_WHOLE.compile_internal,  # numba compiles whole powers of floats
)


@functools.lru_cache(maxsize=8192)
def implementation(function: Any, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """The function that writes a call with operands of these types, and its signature."""
    if any(isinstance(kind, types.Complex) for kind in kinds):
        function = OF_COMPLEX.get(function, function)
    if isinstance(function, Intrinsic):
        found, write = function.emit(TYPING, *kinds)
        return lambda builder, args: write(TARGET, builder, found, args), found
    known = TYPING.resolve_value_type(function)
    found = TYPING.resolve_function_type(known, kinds, {})
    if found is None:
        raise TypeError(f"{function} doesn't take {kinds}")
    if function in WRAPPING and isinstance(found.return_type, types.Integer):
        return WRAPPING[function], found
    return TARGET.get_function(known, found), found


OF_COMPLEX: dict[Any, Any] = {}  # replacements for complex operands, filled in by `complexes`


def _power(builder: Any, args: Any) -> Any:
    """x**n of integers, n >= 0, by squares: a factor x**(2**k) for each bit k of n that is set."""
    x, n = args
    one = ir.Constant(x.type, 1)
    found, square, rest = (cgutils.alloca_once_value(builder, y) for y in (one, x, n))
    start, end = (builder.append_basic_block(f"power.{name}") for name in ("bit", "end"))
    builder.branch(start)
    builder.position_at_end(start)
    factor, bits = builder.load(square), builder.load(rest)
    is_set = builder.trunc(bits, ir.IntType(1))
    builder.store(builder.mul(builder.load(found), builder.select(is_set, factor, one)), found)
    builder.store(builder.mul(factor, factor), square)
    left = builder.lshr(bits, ir.Constant(n.type, 1))
    builder.store(left, rest)
    builder.cbranch(builder.icmp_unsigned("!=", left, ir.Constant(n.type, 0)), start, end)
    builder.position_at_end(end)
    return builder.load(found)


# Integers wrap around, as NumPy's do. numba's tell LLVM that they don't, and its powers to large
# exponents are those of floats.
WRAPPING: dict[Any, Any] = {
    operator.add: lambda builder, args: builder.add(*args),
    operator.sub: lambda builder, args: builder.sub(*args),
    operator.mul: lambda builder, args: builder.mul(*args),
    operator.neg: lambda builder, args: builder.neg(*args),
    operator.pow: _power,
}
