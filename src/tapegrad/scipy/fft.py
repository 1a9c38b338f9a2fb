"""What answers the functions of scipy.fft."""

from __future__ import annotations

HOME = "scipy.fft"
