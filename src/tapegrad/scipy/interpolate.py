"""What answers the functions of scipy.interpolate."""

from __future__ import annotations

HOME = "scipy.interpolate"
