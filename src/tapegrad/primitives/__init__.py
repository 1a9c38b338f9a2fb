"""The primitives, by name: what the tape's text refers to and the contract test covers."""

from __future__ import annotations

from typing import Any

from tapegrad.ir.tape import DECLARED
from tapegrad.primitives import (  # noqa: F401  # for what they declare
    banded,
    binary,
    complexes,
    contractions,
    control,
    correlation,
    cosines,
    degenerate,
    determinants,
    eigen,
    elementwise,
    equations,
    extrema,
    filters,
    fourier,
    halves,
    hermitian,
    kinked,
    kinks,
    loops,
    multilinear,
    norms,
    parts,
    permuted,
    polygamma_differences,
    powers,
    reductions,
    scatter,
    slopes,
    softmax,
    solving,
    sorting,
    sparse,
    special,
    special_bessel,
    special_complex,
    special_distributions,
    special_elementary,
    special_gamma,
    special_integrals,
    special_polynomials,
    spectral,
    toeplitz,
    triangles,
    views,
    windows,
)

_OWN = dict(DECLARED)


def primitives() -> dict[str, Any]:
    """All primitives that tapegrad declares, by name: elementwise ones, and classes of those with
    parameters."""
    return _OWN
