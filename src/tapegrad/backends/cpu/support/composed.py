"""Scalar functions that neither LLVM nor libm has, written in Python.

They are inlined into the loops that call them. They consist of arithmetic, choices by `where` and
functions of `scalars`, so LLVM vectorises a loop over one as if its formula were written there.
"""

# mypy: disable-error-code="call-arg,var-annotated,unreachable"
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.operators import TARGET
from tapegrad.backends.cpu.support.scalars import _common, _intrinsic, exp
from tapegrad.backends.cpu.support.syntax import tree_of
from tapegrad.backends.cpu.support.translation import Translator

INFINITY, NAN = float("inf"), float("nan")


def composed(function: Any) -> Any:
    """A function of one or two numbers, whose body is assignments and a return. It computes in
    float64."""
    arity = function.__code__.co_argcount

    def emit(typingctx: Any, *kinds: Any) -> Any:
        kind = _common(*kinds)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            given = [context.cast(builder, x, kind, types.float64) for x in args]
            found = builder.call(_translated(builder.module, function, arity), given)
            return context.cast(builder, found, types.float64, kind)

        return signature(kind, *[kind] * arity), codegen

    return _intrinsic(emit, function.__name__, arity)


def _translated(module: Any, function: Any, arity: int) -> Any:
    """The function in a module, where LLVM inlines it."""
    name = f"composed {function.__name__}"
    if name not in module.globals:
        real = TARGET.get_value_type(types.float64)
        made = ir.Function(module, ir.FunctionType(real, [real] * arity), name)
        made.linkage = "internal"
        made.attributes.add("alwaysinline")
        translator, tree = Translator(function.__globals__, made), tree_of(function)
        for parameter, argument in zip(tree.args.args, made.args, strict=True):
            translator.take(parameter.arg, argument, types.float64)
        _, *statements, last = tree.body  # after the docstring
        translator.body(statements)
        value, kind = translator.expression(last.value)  # type: ignore[attr-defined]
        value = TARGET.cast(translator.builder, value, kind, types.float64)
        translator.builder.ret(value)
        translator.finish()
        _contract(made)
    return module.globals[name]


def _contract(function: Any) -> None:
    """Let products be added with one rounding, where the processor has an instruction for it."""
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opname in ("fmul", "fadd", "fsub"):
                instruction.flags = [*instruction.flags, "contract"]


@composed
def sech_square(x: Any) -> Any:
    """1 / cosh(x)^2, without overflow in between."""
    small = exp(-2.0 * abs(x))
    whole = 1.0 + small
    return 4.0 * small / (whole * whole)
