"""What answers the functions of scipy.spatial.distance."""

from __future__ import annotations

HOME = "scipy.spatial.distance"
