"""What answers the functions of scipy.linalg."""

from __future__ import annotations

HOME = "scipy.linalg"
