"""What answers the functions of scipy.sparse."""

from __future__ import annotations

HOME = "scipy.sparse"
