"""Which of NumPy's functions are followed on complex numbers: those that are known to be right.

Others take them for real numbers: they are refused by name. Functions that run NumPy's own code
call others, which are asked in their turn; ufuncs ask their primitives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.complexes import cartesian, imag, real
from tapegrad.primitives.kinked import hypot
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import Tracer

# By name, whatever module has them
_FUNCTIONS = """
    reshape ravel transpose swapaxes moveaxis squeeze expand_dims broadcast_to broadcast_arrays roll
    tile repeat resize apply_along_axis zeros_like ones_like full_like diag diagflat diagonal trace
    astype pad concatenate stack array_split insert delete sum prod mean var std any all
    count_nonzero cumsum cumprod linspace ediff1d gradient convolve correlate vander select polymul
    dot vdot inner tensordot einsum kron cross take take_along_axis compress choose nonzero argwhere
    put_along_axis copyto put putmask place fill_diagonal where isclose allclose array_equiv
    array_equal meshgrid imag isreal iscomplex isfortran result_type can_cast min_scalar_type
    may_share_memory shares_memory sliding_window_view permute_dims copy empty_like norm fft ifft
    rfft irfft hfft ihfft fft2 ifft2 fftn ifftn rfft2 irfft2 rfftn irfftn cholesky solve inv det
    slogdet tensorsolve eig eigvals eigh eigvalsh svd qr pinv cond sort nansum nanmean nanprod
    nanvar nanstd nancumsum nancumprod corrcoef sinc lstsq round around
"""
_METHODS = """
    all any cumprod cumsum mean prod std sum var astype copy diagonal flatten ravel repeat squeeze
    swapaxes trace view choose nonzero take dot fill put compress conj conjugate reshape transpose
    sort resize round
"""
FUNCTIONS, METHODS = frozenset(_FUNCTIONS.split()), frozenset(_METHODS.split())


def size_of(z: Any) -> Any:
    """|z|"""
    return hypot(real(z), imag(z))


def by_parts(f: Callable[[Any], Any], z: Any) -> Any:
    """f(x) + i f(y) for z = x + iy"""
    return cartesian(f(real(z)), f(imag(z)))


def sign_of(z: Any) -> Any:
    """z / |z|, the limit where |z| is infinite, and 0 at 0: NumPy's sign of complex numbers."""
    size, parts = size_of(z), [real(z), imag(z)]
    endless = np.isinf(size)
    safe = np.where(endless | (size == 0), 1, size)
    both = endless & np.isinf(parts[0]) & np.isinf(parts[1])
    ends = [np.where(both, np.nan, np.where(np.isinf(x), ew.sign(x), 0)) for x in parts]
    units = [np.where(size == 0, 0, x / safe) for x in parts]
    return cartesian(*[np.where(endless, *xs) for xs in zip(ends, units, strict=True)])


def has_complex(xs: Any) -> bool:
    """Whether complex numbers are among arguments, in lists and tuples too."""
    for x in xs:
        kind = type(x)
        if issubclass(kind, (Tracer, np.ndarray, np.generic)):
            if x.dtype.kind == "c":
                return True
        elif kind is complex or (kind in (list, tuple) and has_complex(x)):
            return True
    return False


def check_function(func: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """An error for a function of NumPy's that isn't known to be right for complex numbers."""
    if func.__name__ in FUNCTIONS or not has_complex((*args, *kwargs.values())):
        return
    name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
    raise _refused(name)


def check_method(name: str, args: Any, kwargs: Any) -> None:
    """The same for a method of arrays."""
    if name not in METHODS and has_complex((*args, *kwargs.values())):
        raise _refused(f"ndarray.{name}")


def _refused(name: str) -> UnsupportedError:
    return refusing(
        UnsupportedError(
            f"{name} of complex numbers isn't supported{at_line()}. Use it on z.real and z.imag, "
            "or write it with functions that are"
        )
    )
