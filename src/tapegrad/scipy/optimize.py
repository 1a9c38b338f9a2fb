"""What answers the functions of scipy.optimize."""

from __future__ import annotations

HOME = "scipy.optimize"
