"""Programs with loops as scientists write them: in plain NumPy, nothing prepared for tracing."""

from __future__ import annotations

from tests.loops import (
    algebra,
    growing,
    integrators,
    nests,
    networks,
    series,
    shapes,
    stencils,
    tables,
)

PROGRAMS = (
    *integrators.PROGRAMS,
    *stencils.PROGRAMS,
    *series.PROGRAMS,
    *tables.PROGRAMS,
    *networks.PROGRAMS,
    *algebra.PROGRAMS,
    *shapes.PROGRAMS,
    *nests.PROGRAMS,
    *growing.PROGRAMS,
)
