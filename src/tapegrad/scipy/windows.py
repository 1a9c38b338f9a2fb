"""What answers the functions of scipy.signal.windows."""

from __future__ import annotations

HOME = "scipy.signal.windows"
