"""Elementwise primitives: arithmetic, comparison, logic, and the functions of `np`.

Each declaration reads: name, NumPy's function, emitted scalar expression, partial derivatives.
Kinks and singular points: see `docs/conventions.md` and tests/primitives/conventions_test.py.

Names: `x`, `y` operands; `out` the result; `ct` cotangent; `ts` tangents.
"""

from __future__ import annotations

import math
from operator import methodcaller
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call, Literal, aval_of, dtype_name
from tapegrad.ir.traits import Algebra
from tapegrad.primitives import slopes
from tapegrad.primitives.base import Elementwise, parametric, total
from tapegrad.primitives.complexes import cast_back
from tapegrad.primitives.kinds import Linear
from tapegrad.primitives.selecting import where_of
from tapegrad.primitives.slopes import DIVISION as DIVISION
from tapegrad.primitives.slopes import FUNCTION as FUNCTION
from tapegrad.primitives.texts import dtype_called

LN2 = math.log(2.0)
LN10 = math.log(10.0)


def zero(x: Any) -> Any:
    """A scalar zero of the dtype of `x`, which broadcasts."""
    return Literal(x.dtype.type(0))


def select(condition: Any, x: Any) -> Any:
    """`x` where the condition holds, else 0: a product with the mask may be 0 * inf."""
    return where(condition, x, zero(x))


# ---- arithmetic


add = Elementwise(
    np.add,
    lambda out, x, y: (1, 1),
    scalar="{0} + {1}",
    numpy="{0} + {1}",
    algebra=Algebra(additive=(0, 1), commutative=True),
    of_complex=True,
)
sub = Elementwise(
    np.subtract,
    lambda out, x, y: (1, -1),
    name="sub",
    scalar="{0} - {1}",
    numpy="{0} - {1}",
    algebra=Algebra(additive=(0, 1)),
    of_complex=True,
)
mul = Elementwise(
    np.multiply,
    lambda out, x, y: (y, x),
    name="mul",
    scalar="{0} * {1}",
    numpy="{0} * {1}",
    algebra=Algebra(linear=(0, 1), commutative=True),
    of_complex=True,
)
neg = Elementwise(
    np.negative,
    lambda out, x: (-1,),
    name="neg",
    scalar="-{0}",
    numpy="-{0}",
    algebra=Algebra(additive=(0,)),
    of_complex=True,
)


def _div_vjp(ct: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    ct_x = ct / y
    return ct_x, -(ct_x * out)


div = Elementwise(
    np.true_divide,
    name="div",
    scalar="{0} / {1}",
    vjp=_div_vjp,
    jvp=lambda ts, out, x, y: total(
        [None if ts[0] is None else ts[0] / y, None if ts[1] is None else -(ts[1] * out) / y]
    ),
    cost=DIVISION,
    numpy="{0} / {1}",
    quick="{0} / {1} if {1} else divide({0}, {1})",
    algebra=Algebra(linear=(0,)),
    of_complex=True,
)


def _power_partials(out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """d x**y: y x**(y-1) and log(x) x**y.

    At x = 0 the slope along y is 0. The slope along x is 0 for 0 < y < 1, where the power is a
    root: an infinite slope is 0 by convention, as for sqrt. For y = 0 the power is constant: the
    slope along x is 0, even where the product 0 * (1 / x) isn't. Elsewhere it has to be the
    product, which has a derivative along y.
    """
    slope = y * power(x, y - 1)
    if x.dtype.kind == "c":
        flat = where(y.equals(0), zero(x), slope)
        return flat, where(x.equals(0), zero(x), out * log(x))
    root = where(x.equals(0), zero(x), slope)
    flat = where(isnan(slope), zero(x), slope)
    # The conditions on y alone come first, so that a constant exponent folds them away.
    along_x = where(y.equals(0), flat, where(logical_and(y > 0, y < 1), root, slope))
    return along_x, select(not_equal(x, zero(x)), out * log(x))


def _power_times(ts: Any, out: Any, x: Any, y: Any) -> list[Any]:
    """The partials times `ts`. For a negative exponent it multiplies in steps, which stay
    finite."""
    along = _power_partials(out, x, y)
    found = [None if t is None else t * slope for t, slope in zip(ts, along, strict=True)]
    falls = isinstance(y.operand, Literal) and np.all(np.less(y.operand.value, 0))
    if falls and x.dtype.kind == "f" and ts[0] is not None:
        found[0] = ts[0] * y * out / x
    return found


class _Power(Elementwise):
    """C's power. NumPy's ufunc takes the square root if one exponent applies to all elements."""

    def evaluate(self, *xs: Any) -> Any:
        return self.for_types(*map(aval_of, xs))(*xs)

    def for_types(self, *avals: Aval) -> Any:
        x, y = avals
        if x.dtype.kind != "f" or (y.shape and y.shape[-1] > 1):
            return self.ufunc
        if x.shape or y.shape:
            return _power_of_each
        return np.float_power if x.dtype == np.float64 else _power_of_numbers

    def template(self, dtype: np.dtype, given: Any) -> str:
        """The emitted expression. Powers to the exponents 3 and 4 are products."""
        exponent = None if given[1] is None or dtype.kind == "c" else float(given[1].value)
        if dtype.kind == "f" and exponent in (3.0, 4.0):
            return " * ".join(["{0}"] * int(exponent))
        text = super().template(dtype, given)
        return text.replace(str(self.scalar), "{0} ** {1}") if dtype.kind in "iu" else text


def _power_of_numbers(x: Any, y: Any) -> Any:
    return x[()] ** y[()]


def _power_of_each(x: Any, y: Any, out: Any = None) -> Any:
    return np.power(x, np.broadcast_arrays(x, y)[1].copy(), out=out)


def _power_of_all(x: Any, y: Any) -> Any:
    """NumPy's power to one exponent for all elements: the square root for 0.5."""
    if np.ndim(y) == 0:
        return np.power(x, y)
    return np.where(np.equal(y, 0.5), np.sqrt(x), _power_of_each(x, y))


def _root(x: Any) -> Any:
    """C's power to 0.5: 0.0 for -0.0, and inf for -inf."""
    return np.sqrt(np.where(x + x == x, x * x, x))


class _Reciprocal(Elementwise):
    def template(self, dtype: np.dtype, given: Any) -> str:
        if dtype.kind == "c":
            return "reciprocal({0})"
        return f"as_{dtype_name(dtype)}({self.scalar})" if dtype.kind in "iu" else str(self.scalar)


class _Where(Elementwise):
    def for_types(self, *avals: Aval) -> Any:
        return where_of(*avals)

    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        """Literal zeros to choose are zeros too."""
        return any(kept) or any(isinstance(x, Literal) and x.value == 0 for x in xs[1:])


_OF_POWERS: Any = {
    "vjp": lambda ct, out, x, y: _power_times((ct, ct), out, x, y),
    "jvp": lambda ts, out, x, y: total(_power_times(ts, out, x, y)),
    "cost": 2 * FUNCTION,
}
power = _Power(
    np.power,
    **_OF_POWERS,
    of_complex=True,
    numpys=True,  # whole powers of complex numbers are products, but not in C's library
)
power_of_all = Elementwise(
    _power_of_all,
    name="power_of_all",
    scalar="where({1} == 0.5, sqrt({0}), power({0}, {1}))",
    **_OF_POWERS,
)
square = Elementwise(
    np.square, lambda out, x: (x * 2,), scalar="{0} * {0}", quick="{0} * {0}", of_complex=True
)
reciprocal = _Reciprocal(
    np.reciprocal,
    scalar="1.0 / {0}",
    times=lambda t, out, x: (-(t * out * out),),  # out * out may be infinite where t * out isn't
    cost=DIVISION,
    of_complex=True,
)


def _over_twice(t: Any, out: Any, x: Any) -> tuple[Any]:
    return (select(not_equal(out, zero(out)), t / (out * 2)),)


sqrt = Elementwise(
    np.sqrt,
    times=_over_twice,
    cost=DIVISION,
    of_complex=True,
)
root = Elementwise(
    _root,
    name="root",
    scalar="sqrt(where({0} + {0} == {0}, {0} * {0}, {0}))",
    quick="sqrt({0} * {0} if {0} + {0} == {0} else {0})",
    times=_over_twice,
    cost=DIVISION,
)
cbrt = Elementwise(
    np.cbrt,
    times=lambda t, out, x: (select(not_equal(out, zero(out)), t / (out * out * 3)),),
    cost=FUNCTION,
)
mod = Elementwise(
    np.mod,
    lambda out, x, y: (1, -floor_divide(x, y)),
    name="mod",
    cost=DIVISION,
    quick="{0} % {1} if {1} else mod({0}, {1})",
)
fmod = Elementwise(np.fmod, lambda out, x, y: (1, -trunc(x / y)), cost=DIVISION)
floor_divide: Elementwise = Elementwise(np.floor_divide, cost=DIVISION)

# ---- exponentials and logarithms

exp = Elementwise(np.exp, lambda out, x: (out,), cost=FUNCTION, of_complex=True)
exp2 = Elementwise(np.exp2, lambda out, x: (out * LN2,), cost=FUNCTION, of_complex=True)
expm1 = Elementwise(np.expm1, lambda out, x: (exp(x),), cost=FUNCTION, of_complex=True)


# Quotients of t: 1 / x may be infinite where t / x isn't.
log = Elementwise(np.log, times=lambda t, out, x: (t / x,), cost=FUNCTION, of_complex=True)
log2 = Elementwise(
    np.log2, times=lambda t, out, x: (t * (1 / LN2) / x,), cost=FUNCTION, of_complex=True
)
log10 = Elementwise(
    np.log10, times=lambda t, out, x: (t * (1 / LN10) / x,), cost=FUNCTION, of_complex=True
)
log1p = Elementwise(
    np.log1p, times=lambda t, out, x: (t / (x + 1),), cost=FUNCTION, of_complex=True
)

# ---- trigonometric and hyperbolic


def _is_complex(x: Any) -> bool:
    return bool(x.dtype.kind == "c")


# For complex x, x - -1 and -(x - 1) replace x + 1 and 1 - x: they keep the sign of a zero, which
# decides the side of a branch cut.


def _arcsin_slope(x: Any) -> Any:
    return 1 / sqrt(-(x - 1) * (x - -1)) if _is_complex(x) else slopes.arcsin_slope(x)


sin = Elementwise(np.sin, lambda out, x: (cos(x),), cost=FUNCTION, of_complex=True)
cos: Elementwise = Elementwise(np.cos, lambda out, x: (-sin(x),), cost=FUNCTION, of_complex=True)
tan = Elementwise(np.tan, lambda out, x: (out * out + 1,), cost=FUNCTION, of_complex=True)
arcsin = Elementwise(
    np.arcsin,
    lambda out, x: (_arcsin_slope(x),),
    scalar="asin({0})",
    cost=FUNCTION,
    of_complex=True,
)
arccos = Elementwise(
    np.arccos,
    lambda out, x: (-_arcsin_slope(x),),
    scalar="acos({0})",
    cost=FUNCTION,
    of_complex=True,
)
arctan = Elementwise(
    np.arctan,
    lambda out, x: (1 / (x * x + 1) if _is_complex(x) else slopes.arctan_slope(x),),
    scalar="atan({0})",
    cost=FUNCTION,
    of_complex=True,
)


def _arccosh_partials(out: Any, x: Any) -> tuple[Any]:
    if _is_complex(x):  # left of the imaginary axis sqrt(x * x - 1) is on another branch
        return (1 / (sqrt(x - 1) * sqrt(x - -1)),)
    return (slopes.arccosh_slope(x),)


sinh = Elementwise(np.sinh, lambda out, x: (cosh(x),), cost=FUNCTION, of_complex=True)
cosh: Elementwise = Elementwise(np.cosh, lambda out, x: (sinh(x),), cost=FUNCTION, of_complex=True)
tanh = Elementwise(
    np.tanh,
    lambda out, x: (1 - out * out if _is_complex(x) else slopes.sech_square(x),),
    cost=FUNCTION,
    of_complex=True,
)
arcsinh = Elementwise(
    np.arcsinh,
    lambda out, x: (1 / sqrt(x * x - -1) if _is_complex(x) else slopes.arcsinh_slope(x),),
    scalar="asinh({0})",
    cost=FUNCTION,
    of_complex=True,
)
arccosh = Elementwise(
    np.arccosh, _arccosh_partials, scalar="acosh({0})", cost=FUNCTION, of_complex=True
)
arctanh = Elementwise(
    np.arctanh,
    lambda out, x: (1 / ((1 - x) * (1 + x)) if _is_complex(x) else slopes.arctanh_slope(x),),
    scalar="atanh({0})",
    cost=FUNCTION,
    of_complex=True,
)


# ---- kinks


sign = Elementwise(np.sign)
floor = Elementwise(np.floor)
ceil = Elementwise(np.ceil)
trunc: Elementwise = Elementwise(np.trunc)
rint = Elementwise(np.rint)


where: Elementwise = _Where(
    np.where,
    scalar="where({0}, {1}, {2})",
    vjp=lambda ct, out, c, x, y: (None, select(c, ct), where(c, zero(ct), ct)),
    jvp=lambda ts, out, c, x, y: (
        None
        if ts[1] is None and ts[2] is None
        else where(
            c,
            ts[1] if ts[1] is not None else zero(x),
            ts[2] if ts[2] is not None else zero(y),
        )
    ),
    numpy="np.where({0}, {1}, {2})",
    quick="{1} if {0} else {2}",
    algebra=Algebra(additive=(1, 2), selects=True),
    of_complex=True,
)

# ---- comparison and logic: no derivative

COMMUTATIVE = Algebra(commutative=True)


def _comparison(name: str, ufunc: Any, sign: str, **how: Any) -> Elementwise:
    text = f"{{0}} {sign} {{1}}"
    return Elementwise(
        ufunc, name=name, scalar=text, dtype=bool, numpy=text, of_complex=True, **how
    )


less: Elementwise = _comparison("less", np.less, "<", numpys=True)
less_equal: Elementwise = _comparison("less_equal", np.less_equal, "<=", numpys=True)
greater: Elementwise = _comparison("greater", np.greater, ">", numpys=True)
greater_equal: Elementwise = _comparison("greater_equal", np.greater_equal, ">=", numpys=True)
equal: Elementwise = _comparison("equal", np.equal, "==", algebra=COMMUTATIVE)
not_equal: Elementwise = _comparison("not_equal", np.not_equal, "!=", algebra=COMMUTATIVE)
logical_and = Elementwise(
    np.logical_and, scalar="{0} & {1}", dtype=bool, quick="{0} & {1}", algebra=COMMUTATIVE
)
logical_or = Elementwise(
    np.logical_or, scalar="{0} | {1}", dtype=bool, quick="{0} | {1}", algebra=COMMUTATIVE
)
logical_xor = Elementwise(np.logical_xor, scalar="{0} ^ {1}", dtype=bool, algebra=COMMUTATIVE)
logical_not = Elementwise(np.logical_not, scalar="not {0}", dtype=bool, quick="{0} == 0")
isnan = Elementwise(np.isnan, dtype=bool, quick="{0} != {0}", of_complex=True)
isinf = Elementwise(np.isinf, dtype=bool, of_complex=True)
isfinite = Elementwise(np.isfinite, dtype=bool, quick="{0} * 0 == 0", of_complex=True)
signbit = Elementwise(np.signbit, scalar="copysign(1.0, {0}) < 0.0", dtype=bool)


def _is_moderate(x: Any, bound: Any) -> Any:
    """Whether `x` is 0, or its magnitude between 1 / bound and bound, a power of two."""
    size = np.abs(x)
    return (size <= bound) & ((size >= 1 / bound) | (size == 0))


moderate = Elementwise(
    _is_moderate, name="moderate", scalar="moderate({0}, {1})", of_all=True, dtype=bool, cost=6
)

# ---- integers

bitwise_and = Elementwise(np.bitwise_and, scalar="{0} & {1}", algebra=COMMUTATIVE)
bitwise_or = Elementwise(np.bitwise_or, scalar="{0} | {1}", algebra=COMMUTATIVE)
bitwise_xor = Elementwise(np.bitwise_xor, scalar="{0} ^ {1}", algebra=COMMUTATIVE)
invert = Elementwise(np.invert, scalar="~{0}")
left_shift = Elementwise(np.left_shift)
right_shift = Elementwise(np.right_shift)
gcd = Elementwise(np.gcd, scalar="", cost=FUNCTION)
lcm = Elementwise(np.lcm, scalar="", cost=FUNCTION)
bitwise_count = Elementwise(np.bitwise_count, scalar="", dtype=np.uint8)

# ---- identity


def _copied(x: Any) -> Any:
    """A copy. np.positive refuses booleans, and returns scalars for 0-d arrays."""
    return x.copy(order="K") if isinstance(x, np.ndarray) else x


stop_gradient = Elementwise(
    _copied, name="stop_gradient", scalar="{0}", cost=0, numpy="{0}", of_complex=True
)
copy = Elementwise(
    _copied,
    lambda out, x: (1,),
    name="copy",
    scalar="{0}",
    cost=0,
    numpy="np.copy({0})",
    algebra=Algebra(additive=(0,)),
    of_complex=True,
)


@parametric
class AsType(Linear):
    """The same numbers in another dtype. The cotangent is cast back to the operand's dtype.

    It is fused and emitted as an elementwise operation.
    """

    dtype: np.dtype

    name = "astype"
    pointwise = True
    of_complex = True

    @property
    def scalar(self) -> str:
        return f"as_{dtype_name(self.dtype)}({{0}})"

    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return any(kept)

    def scalar_text(self, xs: Any) -> str:
        return f"float({xs[0]})" if self.dtype == np.float64 else ""

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}.astype({dtype_called(self.dtype)})"]

    def aval(self, *xs: Aval) -> Aval:
        if xs[0].dtype.kind == "c" != self.dtype.kind:
            raise ValueError(f"{xs[0]} has to lose its imaginary part first, to be {self.dtype}")
        return xs[0].with_dtype(self.dtype)

    def evaluate(self, *xs: Any) -> Any:
        return xs[0].astype(self.dtype)

    def for_types(self, *avals: Aval) -> Any:
        x, kind = avals[0], self.dtype.kind
        # Any number has a value of such a type. Calling the type of a scalar takes a tenth of the
        # time.
        fits = (x.dtype.kind == "b" and kind in "iufc") or (x.dtype.kind in "iuf" and kind == "f")
        return methodcaller("astype", self.dtype) if x.shape or not fits else self.dtype.type

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        if self.dtype.kind not in "fc" or xs[0].dtype.kind not in "fc":
            return (None,)
        return (cast_back(ct, xs[0].dtype, AsType),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None or self.dtype.kind not in "fc" else self(ts[0])
