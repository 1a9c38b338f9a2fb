"""Samples of every primitive: operands that the contract is checked on.

One entry a primitive, chosen to hurt: broadcast, square and not, a repeated index, a negative
step, ties, zeros, infinities, nothing at all. `samples()` lists them for any test that wants to
run over all primitives; `contract_test.py` fails if a primitive has none.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.primitives.samples.calls import of_calls
from tests.primitives.samples.drawn import Sample, each
from tests.primitives.samples.elementwise import of_elementwise
from tests.primitives.samples.kinks import of_kinks, of_norms
from tests.primitives.samples.loops import of_loops
from tests.primitives.samples.others import of_other
from tests.primitives.samples.scatters import of_scatters
from tests.primitives.samples.spectral import of_spectral
from tests.primitives.samples.systems import of_determinants, of_systems
from tests.primitives.samples.views import of_views
from tests.primitives.samples.windows import of_parts, of_windows
from tests.primitives.special_samples import NOT_SMOOTH, special_operands

from tapegrad.primitives import primitives, special_complex
from tapegrad.primitives.base import Elementwise

# These are of complex numbers, or give some: their samples are in `complexes`.
OF_COMPLEX = {"real", "imag", "conj", "cartesian", "fft", "rfft", "irfft"}
OF_COMPLEX |= {"hermitian_cholesky", "hermitian_eigh", "complex_eig", "complex_svd"}
OF_COMPLEX |= {"complex_slogdet"}
OF_COMPLEX |= {p.name for p in special_complex.OF_COMPLEX.values()}
OF_COMPLEX |= {"wofz", "lambertw", "hankel1", "hankel1e", "hankel2", "hankel2e"}


@cache
def samples() -> dict[str, list[Sample]]:
    """The samples of each primitive, by its name; an empty list for one that has none."""
    from tests.primitives.matrices import of_matrices

    structural: dict[Any, list[Sample]] = {
        **of_views(),
        **of_scatters(),
        **of_windows(),
        **of_parts(),
        **of_calls(),
        **of_loops(),
        **of_other(),
        **of_systems(),
        **of_determinants(),
        **of_kinks(),
        **of_norms(),
        **of_spectral(),
        **of_matrices(),
    }
    found: dict[str, list[Sample]] = {}
    by_scipy = {name: (operands, fixed) for name, operands, fixed in special_operands()}
    for name, entry in primitives().items():
        if name in OF_COMPLEX:
            continue
        if name in by_scipy:
            operands, fixed = by_scipy[name]
            one = each(lambda *row, entry=entry: entry.evaluate(*row), float)
            smooth = name not in NOT_SMOOTH
            found[name] = [Sample(entry, tuple(operands), one, smooth, fixed=fixed)]
        elif isinstance(entry, Elementwise):
            found[name] = list(of_elementwise(name, entry))
        else:
            found[name] = structural.get(entry, [])
    return found


def all_samples() -> list[Sample]:
    """Every sample of every primitive."""
    return [sample for each_of in samples().values() for sample in each_of]
