"""What answers the functions of scipy.integrate."""

from __future__ import annotations

HOME = "scipy.integrate"
