"""What answers the functions of scipy.sparse.linalg."""

from __future__ import annotations

HOME = "scipy.sparse.linalg"
