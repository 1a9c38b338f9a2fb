"""Traceable versions of scipy.signal.windows, with traced parameters: SciPy's own code."""

from __future__ import annotations

from tapegrad.scipy.borrowing import borrow

HOME = "scipy.signal.windows"

REFUSED = {
    """barthann bartlett blackman blackmanharris bohman boxcar cosine flattop hamming hann lanczos
    nuttall parzen triang""": "a plain number of points: it has no other parameter",
    "dpss": "scipy.signal.windows.kaiser, which comes close to it",
}

borrow(
    HOME,
    """gaussian general_gaussian general_cosine general_hamming kaiser kaiser_bessel_derived
    exponential tukey chebwin taylor""",
)
