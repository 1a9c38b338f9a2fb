"""Functions of `scipy.special` for complex numbers, where rules or kernels differ from the real
ones.

They are differentiated where they are analytic. SciPy has the derivative of digamma for real
numbers only, so second derivatives of functions made of gamma are an error.
"""

from __future__ import annotations

import math
from typing import Any

from tapegrad.primitives.base import Missing
from tapegrad.primitives.elementwise import exp, log, log1p, where
from tapegrad.primitives.scipys import SciPys, ratio
from tapegrad.primitives.special import TWO_OVER_SQRT_PI


def _of_complex(name: str, partials: Any) -> SciPys:
    """A primitive for complex numbers, with a name of its own: the plain name is the real
    primitive's."""
    return SciPys(f"{name}_of_complex", partials, name, of_complex=True)


digamma = _of_complex("digamma", lambda out, z: (Missing("a complex argument"),))
gamma = _of_complex("gamma", lambda out, z: (out * digamma(z),))
loggamma = _of_complex("loggamma", lambda out, z: (digamma(z),))
rgamma = _of_complex("rgamma", lambda out, z: (-(out * digamma(z)),))
erfcx = _of_complex("erfcx", lambda out, z: (z * out * 2 - TWO_OVER_SQRT_PI,))
log_ndtr = _of_complex(
    "log_ndtr", lambda out, z: (exp(-(z * z * 0.5) - out) * (1 / math.sqrt(2 * math.pi)),)
)
spence = _of_complex("spence", lambda out, z: (ratio(log1p(z - 1), 1 - z, -1.0),))
xlogy = _of_complex("xlogy", lambda out, x, y: (log(y), where(x.equals(0), x.constant(0), x / y)))
xlog1py = _of_complex(
    "xlog1py", lambda out, x, y: (log1p(y), where(x.equals(0), x.constant(0), x / (y + 1)))
)

# By SciPy's names.
OF_COMPLEX: dict[str, SciPys] = {
    p.name.removesuffix("_of_complex"): p
    for p in (digamma, gamma, loggamma, rgamma, erfcx, log_ndtr, spence, xlogy, xlog1py)
} | {"psi": digamma}
