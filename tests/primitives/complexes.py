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
import scipy.special as sp
from tests.primitives.matrices import of_complex_matrices
from tests.primitives.samples import all_samples, samples
from tests.primitives.samples.drawn import Sample, each, normal

from tapegrad.primitives import (
    complexes,
    special_bessel,
    special_complex,
    special_elementary,
    special_integrals,
)
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.fourier import FFT, IRFFT, RFFT, TURNED
from tapegrad.primitives.hermitian import (
    ComplexEig,
    ComplexSLogDet,
    ComplexSVD,
    HermitianCholesky,
    HermitianEigH,
)
from tapegrad.primitives.scipys import SciPys
from tapegrad.primitives.solving import LU, InverseT, LUSolve
from tapegrad.primitives.spectral import QR, PInv

# What holds tapes is declared for the types of these: programs test it.
HOLDING = {"call", "loop", "empty", "custom"}
PLAIN = {
    "carlson",
    "chebyshev",
    "correlate",
    "cumlinear",
}  # whose references take complex numbers, too
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
    "recompute_after": lambda z, w: w,
    "conj": lambda z: z.conjugate(),
}
TESTS: dict[str, Callable[..., Any]] = {
    "less": lambda z, w: (z.real, z.imag) < (w.real, w.imag),
    "less_equal": lambda z, w: (z.real, z.imag) <= (w.real, w.imag),
    "greater": lambda z, w: (z.real, z.imag) > (w.real, w.imag),
    "greater_equal": lambda z, w: (z.real, z.imag) >= (w.real, w.imag),
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
    "einsum": lambda p, z, w: np.einsum(p.subscripts, z, w),
    "products": lambda p, *zs: np.einsum(p.subscripts, *zs, optimize=True),
    "triangular_solve": lambda p, t, b: np.linalg.inv(_triangle(p, t)) @ b,
}
SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
INFINITE = SPECIAL[:, None] + 1j * np.zeros(7)
INFINITE.imag = SPECIAL


def _triangle(p: Any, t: Any) -> Any:
    t = (np.tril if p.lower else np.triu)(t)
    return t - t * np.eye(t.shape[-1]) + np.eye(t.shape[-1]) if p.unit else t


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
    elif isinstance(primitive, SciPys) and not name.startswith("ellipr"):
        # Its orders and parameters are real, and so are those of the real sample.
        orders, z = sample.operands[:-1], zs[-1]
        yield replace(made, operands=(*orders, z), reference=primitive.ufunc)
    elif isinstance(primitive, Elementwise):
        scalar = SCALAR.get(name) or getattr(cmath, name, None) or getattr(sp, name, None)
        if sample.smooth or name == "stop_gradient":
            tests = name in TESTS
            found = each(TESTS[name], bool) if tests else each(scalar, complex)
            yield replace(made, reference=found)
    elif name in MULTIPLIED:
        yield replace(made, reference=lambda *zs: MULTIPLIED[name](primitive, *zs))
    elif name in PLAIN:
        yield made
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
    yield Sample(special_integrals.wofz, (z,), each(sp.wofz, complex))
    for name, own in special_complex.OF_COMPLEX.items():
        of, xs = each(getattr(sp, name), complex), (z, 2 - z) if name.startswith("xlog") else (z,)
        if name != "psi":  # which is digamma; there is no second derivative of gamma's kind
            fixed = (0,) if name == "digamma" else ()
            yield Sample(own, xs, of, smooth="gamma" not in name, fixed=fixed)
    branches = np.array([0, -1, 1])
    yield Sample(special_elementary.lambertw, (branches, z), lambda k, z: sp.lambertw(z, k))
    for name in ("hankel1", "hankel1e", "hankel2", "hankel2e"):
        order, of = np.array([0.5, 1.0, 1.7]), each(getattr(sp, name), complex)
        yield Sample(getattr(special_bessel, name), (order, z), of, fixed=(0,))
    wide, narrow = np.dtype(complex), np.dtype(np.complex64)
    yield Sample(AsType(wide), (x,), lambda x: x + 0j, narrow=AsType(narrow))
    yield Sample(AsType(wide), (np.arange(3),), lambda x: x + 0j, label="integers")
    yield Sample(AsType(wide), (z,), lambda z: z, label="of complex", narrow=AsType(narrow))


def _decompositions() -> Iterator[Sample]:
    """Vectors that have a phase of their own have no differences: programs test those."""
    for shape in ((3, 3), (1, 1), (2, 3, 3)):
        a = normal(*shape) + 1j * normal(*shape, seed=1) + 2 * np.eye(shape[-1])
        b = normal(*shape, seed=2) + 1j * normal(*shape, seed=3)
        definite = a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(shape[-1])
        factors, failed = LU().evaluate(a), np.zeros(shape[:-2], bool)
        known: dict[str, Any] = {"factored": LU(), "label": f"complex {shape}"}
        yield Sample(LU(), (a,), _factors, reverse=False, label=known["label"])
        for turned in (False, True):

            def solved(a: Any, lu: Any, pivots: Any, b: Any, turned: bool = turned) -> Any:
                return b @ np.linalg.inv(a if turned else np.swapaxes(a, -1, -2))

            yield Sample(LUSolve(turned), (a, *factors, b), solved, **known)
        inverse = Sample(InverseT(), (a, *factors), lambda a, *_: _inverse_t(a), **known)
        yield inverse
        yield replace(inverse, primitive=ComplexSLogDet(), reference=_slogdet)
        yield Sample(
            HermitianCholesky(),
            (definite,),
            lambda a, failed=failed: (np.linalg.cholesky(a), failed),
            label=f"complex {shape}",
        )
        for low in (True, False):

            def values(a: Any, low: bool = low, failed: Any = failed) -> Any:
                w, v = np.linalg.eigh(a, "L" if low else "U")
                return w, v, failed

            yield Sample(
                HermitianEigH(low), (definite,), values, smooth=False, label=f"{shape}{low}"
            )
        for x in (a, a.real):
            yield Sample(
                ComplexEig(),
                (x,),
                lambda x, failed=failed: (*(part + 0j for part in np.linalg.eig(x)), failed),
                smooth=False,
                label=f"{x.dtype} {shape}",
            )
    for shape in ((3, 3), (4, 2), (2, 4), (2, 4, 3)):
        a = normal(*shape) + 1j * normal(*shape, seed=1)
        failed = np.zeros(shape[:-2], bool)
        yield Sample(
            ComplexSVD(),
            (a,),
            lambda a, failed=failed: (*np.linalg.svd(a, False), failed),
            smooth=False,
            label=f"complex {shape}",
        )
        yield Sample(
            PInv(1e-12),
            (a,),
            lambda a, failed=failed: (np.linalg.pinv(a), failed),
            label=f"{shape}",
        )
        if shape[-2] >= shape[-1]:
            yield Sample(QR(), (a,), lambda a: tuple(np.linalg.qr(a)), label=f"complex {shape}")


def _factors(a: Any) -> Any:
    """By SciPy's other function, a matrix at a time."""
    from scipy.linalg import lu_factor

    parts = [lu_factor(x) for x in a.reshape(-1, *a.shape[-2:])]
    rows = np.stack([x.T for x, _ in parts]).reshape(a.shape)
    return rows, np.stack([p + 1 for _, p in parts]).reshape(a.shape[:-1]).astype(np.int32)


def _inverse_t(a: Any) -> Any:
    return np.swapaxes(np.linalg.inv(a), -1, -2)


def _slogdet(a: Any, *factors: Any) -> Any:
    d = np.linalg.det(a)
    return d / np.abs(d), np.log(np.abs(d))


def _matrix(n: int, inverse: bool = False) -> Any:
    """That of a transform."""
    k = np.arange(n)
    return np.exp((2j if inverse else -2j) * np.pi * k[:, None] * k / n)


def _divisor(n: int, norm: str, inverse: bool) -> float:
    return {"ortho": n**0.5, "backward": n if inverse else 1, "forward": 1 if inverse else n}[norm]


def _transforms() -> Iterator[Sample]:
    z = normal(3, 4) + 1j * normal(3, 4, seed=1)
    for inverse in (False, True):
        for norm in TURNED:

            def along_last(z: Any, inverse: bool = inverse, norm: str = norm) -> Any:
                return z @ _matrix(4, inverse) / _divisor(4, norm, inverse)

            for x in (z, z.real):
                name = f"{norm} {inverse} {x.dtype}"
                yield Sample(FFT((1,), inverse, norm), (x,), along_last, label=name)
    both = FFT((0, 1), False, "backward")
    yield Sample(both, (z,), lambda z: _matrix(3) @ z @ _matrix(4), label="both axes")
    for n in (1, 2, 5, 6):
        for norm in TURNED:
            x, half = normal(2, n), n // 2 + 1

            def real(x: Any, n: int = n, norm: str = norm) -> Any:
                return (x @ _matrix(n))[:, : n // 2 + 1] / _divisor(n, norm, False)

            def back(z: Any, n: int = n, norm: str = norm) -> Any:
                rest = np.conj(z[:, 1 : n - n // 2][:, ::-1])  # the first and the last are real
                whole = np.concatenate([z, rest], 1)
                whole[:, 0] = whole[:, 0].real
                whole[:, n // 2] = whole[:, n // 2].real if n % 2 == 0 else whole[:, n // 2]
                return (whole @ _matrix(n, True)).real / _divisor(n, norm, True)

            yield Sample(RFFT(1, norm), (x,), real, label=f"{n} {norm}")
            y = normal(2, half, seed=3) + 1j * normal(2, half, seed=4)
            yield Sample(IRFFT(1, n, norm), (y,), back, label=f"{n} {norm}")
    yield Sample(RFFT(0, "ortho"), (normal(4, 3),), lambda x: np.fft.rfft(x, axis=0, norm="ortho"))


OWN = {"lu", "pinv", "polar", "qr", "ranked", "sylvester", "expm", "logm", "sqrtm"}
OWN |= {"sparse_product", "sparse_by_sparse", "sampled", "sparse_solve", "expm_product"}


def complex_samples() -> list[Sample]:
    """Samples with complex operands, or results."""
    found = [*_own(), *_transforms(), *_decompositions(), *of_complex_matrices()]
    for name, several in samples().items():
        for sample in several:
            own = name in HOLDING or name in OWN or sample.factored is not None
            takes = sample.primitive.of_complex and not own
            if takes and any(x.dtype.kind == "f" for x in sample.operands):
                found += _of(sample)
    return found


def taking_complex() -> set[str]:
    """The primitives that say that they take complex numbers."""
    return {
        str(s.primitive.name)
        for s in [*all_samples(), *complex_samples()]
        if s.primitive.of_complex
    }
