"""Scalar functions that neither LLVM nor libm has, written in Python.

They become part of the loops that call them: arithmetic, choices by `where` and functions of
`scalars`, so LLVM vectorises a loop over one as if its formula stood there.
"""

# mypy: disable-error-code="call-arg,var-annotated,unreachable"
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.scalars import _common, _intrinsic, copysign, log, sqrt, where
from tapegrad.backends.cpu.support.syntax import tree_of
from tapegrad.backends.cpu.support.translation import TARGET, Translator

INFINITY = float("inf")
SQRT_EIGHTH = 0.3535533905932738


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
    """The function in a module, where LLVM puts its body in the place of calls."""
    name = f"composed {function.__name__}"
    if name not in module.globals:
        real = TARGET.get_value_type(types.float64)
        made = ir.Function(module, ir.FunctionType(real, [real] * arity), name)
        made.linkage = "internal"
        made.attributes.add("alwaysinline")
        translator, tree = Translator(function.__globals__, made), tree_of(function)
        for parameter, argument in zip(tree.args.args, made.args, strict=True):
            translator.take(parameter.arg, argument, types.float64)
        _, *statements, last = tree.body  # after what it says of itself
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
def erfinv(y: Any) -> Any:
    """The inverse of the error function, by the quantile of the normal distribution of (y + 1) / 2:
    M. J. Wichura, "Algorithm AS 241", Applied Statistics 37 (1988), PPND16. Three quotients of
    polynomials: one around 0, two of the root of a logarithm. 1 - |y| is exact where that counts.
    """
    q = y * 0.5
    r = 0.180625 - q * q
    a = ((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) * r
    a = ((a + 4.5921953931549871457e4) * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3
    a = y * ((a * r + 1.3314166789178437745e2) * r + 3.3871328727963666080)
    b = ((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) * r
    b = ((b + 2.1213794301586595867e4) * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2
    b = (b * r + 4.2313330701600911252e1) * r + 1.0
    tail = sqrt(-log((1.0 - abs(y)) * 0.5))
    r = tail - 1.6
    c = (
        (7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 0.241780725177450611770
    ) * r
    c = ((c + 1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.76949722146069140550
    c = (c * r + 4.63033784615654529590) * r + 1.42343711074968357734
    d = (
        (1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2
    ) * r
    d = ((d + 0.148103976427480074590) * r + 0.689767334985100004550) * r + 1.67638483018380384940
    d = (d * r + 2.05319162663775882187) * r + 1.0
    r = tail - 5.0
    e = (
        (2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3
    ) * r
    e = ((e + 2.65321895265761230930e-2) * r + 0.296560571828504891230) * r + 1.78482653991729133580
    e = (e * r + 5.46378491116411436990) * r + 6.65790464350110377720
    f = (
        (2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5
    ) * r
    f = (
        (f + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2
    ) * r + 0.136929880922735805310
    f = (f * r + 0.599832206555887937690) * r + 1.0
    top = where(tail > 5.0, e, c)
    below = where(tail > 5.0, f, d)
    near = abs(q) <= 0.425
    quotient = where(near, a, copysign(top + top, y)) / where(near, b, below)
    return where(tail == INFINITY, copysign(INFINITY, y), quotient * SQRT_EIGHTH + 0.0)
