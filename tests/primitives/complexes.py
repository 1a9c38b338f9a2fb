"""Samples with complex operands, for each primitive that takes them.

Most are made of the real samples: an imaginary part is drawn for each operand. What is linear gives
the parts' own results; elementwise functions are those of `cmath`.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.primitives.samples import Sample, all_samples, each, normal, samples

from tapegrad.primitives import complexes
from tapegrad.primitives.base import Elementwise

# What holds tapes is declared for the types of these: programs test it.
HOLDING = {"call", "loop"}
SCALAR: dict[str, Callable[..., Any]] = {
    "add": lambda z, w: z + w,
    "sub": lambda z, w: z - w,
    "mul": lambda z, w: z * w,
    "div": lambda z, w: z / w,
    "power": lambda z, w: z**w,
    "neg": lambda z: -z,
    "square": lambda z: z * z,
    "reciprocal": lambda z: 1 / z,
    "exp2": lambda z: 2**z,
    "expm1": lambda z: cmath.exp(z) - 1,
    "log2": lambda z: cmath.log(z) / cmath.log(2),
    "log1p": lambda z: cmath.log(1 + z),
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "arcsinh": cmath.asinh,
    "arccosh": cmath.acosh,
    "arctanh": cmath.atanh,
    "stop_gradient": lambda z: z,
    "copy": lambda z: z,
    "conj": lambda z: z.conjugate(),
}
TESTS: dict[str, Callable[..., Any]] = {
    "equal": lambda z, w: z == w,
    "not_equal": lambda z, w: z != w,
    "isnan": cmath.isnan,
    "isinf": cmath.isinf,
    "isfinite": cmath.isfinite,
}
# Products, of which the parts aren't the parts' own
MULTIPLIED: dict[str, Callable[..., Any]] = {
    "prod": lambda p, z: np.prod(z, p.axes),
    "cumprod": lambda p, z: np.cumprod(z, p.axis),
    "matmul": lambda p, z, w: np.einsum("...ij,...jk->...ik", z, w),
}
SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
INFINITE = SPECIAL[:, None] + 1j * np.zeros(7)
INFINITE.imag = SPECIAL


def with_imaginary_parts(xs: Sequence[Any]) -> list[Any]:
    """Real operands as complex ones; the parts of the numbers stay clear of 0."""
    return [
        x + 1j * normal(*np.shape(x), seed=40 + k) if x.dtype.kind == "f" else x
        for k, x in enumerate(xs)
    ]


def _by_parts(primitive: Any) -> Callable[..., Any]:
    """What is linear in all complex operands together, by its values for real ones."""
    zero = replace(primitive, fill=0) if hasattr(primitive, "fill") else primitive

    def whole(*zs: Any) -> Any:
        real, imag = (
            p.evaluate(*[getattr(z, part) if z.dtype.kind == "c" else z for z in zs])
            for p, part in ((primitive, "real"), (zero, "imag"))
        )
        return real + 1j * np.asarray(imag)

    return whole


def _of(sample: Sample) -> Iterator[Sample]:
    primitive = sample.primitive
    name = str(primitive.name)
    zs = with_imaginary_parts(sample.operands)
    made = replace(sample, operands=tuple(zs), label=f"complex {sample.label}".strip())
    made = replace(made, analytic=False)
    if name == "where":
        yield replace(made, reference=lambda c, z, w: np.where(c, z, w))
    elif isinstance(primitive, Elementwise):
        scalar = SCALAR.get(name) or getattr(cmath, name, None)
        if sample.smooth or name == "stop_gradient":
            tests = name in TESTS
            found = each(TESTS[name], bool) if tests else each(scalar, complex)
            yield replace(made, reference=found)
    elif name in MULTIPLIED:
        yield replace(made, reference=lambda *zs: MULTIPLIED[name](primitive, *zs))
    elif name == "astype":
        return
    else:
        yield replace(made, reference=_by_parts(primitive))


def _own() -> Iterator[Sample]:
    z, x, y = normal(2, 3) + 1j * normal(2, 3, seed=1), normal(3), normal(2, 1, seed=2)
    yield Sample(complexes.real, (z,), each(lambda z: z.real, float))
    yield Sample(complexes.imag, (z,), each(lambda z: z.imag, float))
    yield Sample(complexes.conj, (z,), each(lambda z: z.conjugate(), complex))
    yield Sample(complexes.cartesian, (x, y), each(lambda x, y: complex(x, y), complex))
    yield Sample(complexes.cartesian, (x[0], x[1]), complex, label="scalars")
    for part in (complexes.real, complexes.imag, complexes.conj):
        yield Sample(part, (INFINITE,), part.ufunc, smooth=False, label="special")
        yield Sample(part, (z[:0],), part.ufunc, label="empty")
    from tapegrad.primitives.elementwise import AsType

    wide, narrow = np.dtype(complex), np.dtype(np.complex64)
    yield Sample(AsType(wide), (x,), lambda x: x + 0j, narrow=AsType(narrow))
    yield Sample(AsType(wide), (np.arange(3),), lambda x: x + 0j, label="integers")
    yield Sample(AsType(wide), (z,), lambda z: z, label="of complex", narrow=AsType(narrow))


def complex_samples() -> list[Sample]:
    """Samples with complex operands, or results."""
    found = list(_own())
    for name, several in samples().items():
        for sample in several:
            takes = sample.primitive.of_complex and name not in HOLDING and sample.factored is None
            if takes and any(x.dtype.kind == "f" for x in sample.operands):
                found += _of(sample)
    return found


def taking_complex() -> set[str]:
    """The primitives that say that they take complex numbers."""
    return {str(s.primitive.name) for s in [*all_samples(), *_own()] if s.primitive.of_complex}
