"""What answers the functions of scipy.signal."""

from __future__ import annotations

HOME = "scipy.signal"
