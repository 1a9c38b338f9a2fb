"""What answers the functions of scipy.integrate, beside its files."""

from __future__ import annotations

from tapegrad.scipy.borrowing import borrow, converting
from tapegrad.scipy.integrate import boundaries, quadrature, trajectories
from tapegrad.scipy.refusing import refuse_with_callbacks

HOME = "scipy.integrate"

REFUSED = {
    "dblquad tplquad nquad cubature qmc_quad": (
        "scipy.integrate.quad in the integrand of quad, or fixed_quad"
    ),
    "tanhsinh nsum": "scipy.integrate.quad, or tapegrad.scan over the terms",
}

converting("scipy.integrate._quadrature", "simpson")
borrow(HOME, "simpson trapezoid cumulative_trapezoid cumulative_simpson romb")
refuse_with_callbacks(HOME, "dblquad tplquad nquad cubature qmc_quad tanhsinh nsum")

__all__ = ["boundaries", "quadrature", "trajectories"]
