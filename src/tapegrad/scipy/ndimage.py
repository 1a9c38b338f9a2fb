"""What answers the functions of scipy.ndimage."""

from __future__ import annotations

HOME = "scipy.ndimage"
