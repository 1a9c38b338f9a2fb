"""What answers the functions of scipy.signal.windows, in their parameters: SciPy's own code."""

from __future__ import annotations

from tapegrad.scipy.borrowing import borrow

HOME = "scipy.signal.windows"

borrow(
    HOME,
    """gaussian general_gaussian general_cosine general_hamming kaiser kaiser_bessel_derived
    exponential tukey""",
)
