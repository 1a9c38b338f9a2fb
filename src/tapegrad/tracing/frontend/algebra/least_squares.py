"""np.linalg.pinv and np.linalg.lstsq on traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.complexes import conj, real
from tapegrad.primitives.elementwise import stop_gradient
from tapegrad.primitives.spectral import PInv
from tapegrad.tracing.frontend.algebra.linalg import (
    LinAlgError,
    check_square,
    check_stacked,
    floating,
    raise_if,
    refuse_complex,
    svd,
    transposed,
)
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.operands import cast
from tapegrad.tracing.frontend.operands.parameters import tolerance
from tapegrad.tracing.memory.deferred import Deferred
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import stand_in


@stands_for(np.linalg, of_complex=True)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, **kwargs: Any) -> Any:
    """np.linalg.pinv. The derivative is that at constant rank."""
    (a,) = floating(a)
    check_stacked(a)
    if hermitian:
        refuse_complex(a, "pinv with hermitian=True", "Leave it out")
        check_square(a)
        a = np.tril(a) + transposed(np.tril(a, -1))
    if rcond is not None and "rtol" in kwargs:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if rcond is None:
        rcond = kwargs.pop("rtol", 1e-15)
        if rcond is None:
            rcond = max(a.shape[-2:]) * float(np.finfo(a.dtype).eps)
    if kwargs:
        raise TypeError(f"pinv() got an unexpected keyword argument {next(iter(kwargs))!r}")
    return pseudoinverse(a, rcond if np.ndim(rcond) else one_cut(rcond, "pinv"))


def one_cut(rcond: Any, name: str) -> float:
    """`rcond` as a plain number: the fraction of the largest singular value below which others
    count as 0."""
    if np.ndim(rcond):
        raise UnsupportedError(
            f"np.linalg.{name} with an array as rcond isn't supported on traced arrays{at_line()}. "
            "Pass one number"
        )
    return float(tolerance(rcond))


def scales(a: Any, axis: Any = None) -> tuple[Any, Any]:
    """The power of two that scales the largest element of `a`, overall or along an axis, to about
    1; and its inverse. They have no derivative."""
    size = np.abs(stop_gradient(a))
    most = np.finfo(size.dtype).maxexp - 24  # the inverse doesn't overflow
    largest = np.max(size, axis=axis, keepdims=axis is not None)
    power = np.clip(np.frexp(largest)[1], -most, most)
    one = size.dtype.type(1)
    return np.ldexp(one, -power), np.ldexp(one, power)


def pseudoinverse(a: Any, rcond: Any) -> Any:
    """The pseudoinverse of a matrix. Singular values below `rcond` times the largest count as 0."""
    if not a.size:
        return _pseudoinverse(a, rcond)
    down = scales(a, (-2, -1))[0]
    return _pseudoinverse(a * down, rcond) * down


def _pseudoinverse(a: Any, rcond: Any) -> Any:
    """The pseudoinverse of a scaled matrix, whose squares, in the derivative, don't overflow.

    If singular values beyond rounding are cut off, it is that of A P, with P the projection on the
    remaining singular vectors. P turns when A changes, which the formula at constant rank doesn't
    include. Each matrix of a batch may have another part cut off."""
    rounding = max(a.shape[-2:], default=0) * float(np.finfo(a.dtype).eps)
    is_one = type(rcond) is float
    if a.size and not (is_one and rcond <= rounding):
        cut = rcond if is_one else np.reshape(rcond, (*np.shape(rcond), 1))
        _, s, vt = svd(a, full_matrices=False)
        relative = s / np.maximum(s[..., :1], np.finfo(a.dtype).tiny)
        if not is_one and np.any((relative > cut) & (relative <= rounding)):
            raise refusing(
                UnsupportedError(
                    f"np.linalg.pinv with an array as rcond can't be traced{at_line()} where it "
                    "keeps singular values that are rounding alone. Pass one number"
                )
            )
        if np.any((relative > rounding) & (relative <= cut)):
            rows = vt * (relative > cut)[..., None]
            a = a @ np.conjugate(transposed(rows)) @ rows
    result, failed = PInv(rcond if is_one else rounding)(a)
    raise_if(failed, "SVD did not converge")
    return result


def least_squares(a: Any, b: Any, rcond: float) -> Any:
    """P b, with P the pseudoinverse of a. Scaling keeps intermediate values from overflowing unless
    x does."""
    if not (a.size and b.size):
        return _pseudoinverse(a, rcond) @ b
    raise_if(~np.all(np.isfinite(a)), "SVD did not converge in Linear Least Squares")
    down = scales(a)[0]
    size = np.abs(stop_gradient(b))
    one = size.dtype.type(1)  # `where` of Python numbers would be in double precision
    room = np.where(np.max(size) > np.finfo(b.dtype).max / 2**100, 2**100 * one, one)
    return _pseudoinverse(a * down, rcond) @ (b / room) * down * room


def cut_of(rcond: Any, eps: float) -> Any:
    """The cutoff of LAPACK's gelsd: its default, if `rcond` is outside (0, 1)."""
    return rcond if 0 < rcond < 1 else eps


@stands_for(np.linalg, of_complex=True)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """np.linalg.lstsq. The existence of residuals depends on the rank, which is guarded when they
    are used."""
    a, b = floating(a, b)
    if a.ndim != 2 or b.ndim not in (1, 2):
        wrong = a if a.ndim != 2 else b
        raise LinAlgError(f"{wrong.ndim}-dimensional array given. Array must be two-dimensional")
    if a.shape[0] != b.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    eps = float(np.finfo(a.dtype).eps)
    cut = eps * max(a.shape) if rcond is None else cut_of(one_cut(rcond, "lstsq"), eps)
    x = least_squares(a, b, cut)
    s = svd(a, full_matrices=False)[1]
    rank = cast(np.count_nonzero(s > cut * s[:1]), np.int32)
    residuals: Any = Residuals
    return x, residuals(a, b, x, rank), rank, s


def _squares(x: Any) -> Any:
    """|x|^2"""
    return real(x * conj(x)) if x.dtype.kind == "c" else np.square(x)


class Residuals(Deferred):
    """The sums of squares of the columns of B - A X; empty unless A has full rank and more rows
    than columns. They are computed on first use, since that depends on the rank, which costs a
    guard, and the computation of the rank at each call."""

    __slots__ = ("_found", "_given")

    def __init__(self, a: Any, b: Any, x: Any, rank: Any) -> None:
        # Later writes to these don't count.
        self._given: list[Any] = [stand_in(v._trace, *v._read()) for v in (a, b, x, rank)]
        self._found: Any = None

    def _made(self) -> Any:
        if self._found is None:
            a, b, x, rank = self._given
            m, n = a.shape
            if m > n and int(rank) == n:
                self._found = np.sum(_squares(b - a @ x).reshape(m, -1), axis=0)
            else:
                self._found = np.zeros_like(_squares(x), shape=0)
        return self._found
