"""The primitives, by name: what the tape's text refers to and the contract test covers."""

from __future__ import annotations

from functools import cache
from typing import Any

from tapegrad.primitives import (
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
    hermitian,
    kinked,
    kinks,
    loops,
    multilinear,
    norms,
    parts,
    permuted,
    powers,
    reductions,
    rises,
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
from tapegrad.primitives.base import Elementwise, Parametric

_MODULES = (
    slopes,
    elementwise,
    kinks,
    norms,
    kinked,
    binary,
    complexes,
    special,
    rises,
    special_bessel,
    special_complex,
    special_distributions,
    special_elementary,
    special_gamma,
    special_integrals,
    special_polynomials,
    reductions,
    extrema,
    softmax,
    fourier,
    cosines,
    hermitian,
    views,
    scatter,
    windows,
    parts,
    contractions,
    multilinear,
    correlation,
    triangles,
    solving,
    banded,
    filters,
    determinants,
    degenerate,
    spectral,
    eigen,
    permuted,
    powers,
    equations,
    toeplitz,
    sparse,
    sorting,
    control,
    loops,
)


def _declared() -> dict[str, Any]:
    """Name -> elementwise primitive, or class of a primitive with parameters."""
    found: dict[str, Any] = {}
    for module in _MODULES:
        for entry in vars(module).values():
            if isinstance(entry, Elementwise) or _is_concrete(entry):
                found[str(entry.name)] = entry
    return found


def _is_concrete(entry: Any) -> bool:
    """Whether `entry` is a class of primitives that has a name, not one of the kinds."""
    return (
        isinstance(entry, type)
        and issubclass(entry, Parametric)
        and isinstance(getattr(entry, "name", None), str)
    )


@cache
def primitives() -> dict[str, Any]:
    """All primitives that tapegrad declares, by name."""
    return _declared()
