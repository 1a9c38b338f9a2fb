"""What answers the functions of scipy.stats."""

from __future__ import annotations

HOME = "scipy.stats"
