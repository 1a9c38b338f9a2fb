"""Traceable versions of the functions of scipy.integrate."""

from __future__ import annotations

from tapegrad.scipy.borrowing import borrow, converting
from tapegrad.scipy.integrate import boundaries, nested, quadrature, trajectories
from tapegrad.scipy.refusing import refuse_with_callbacks

HOME = "scipy.integrate"

REFUSED = {
    "tplquad": (
        "the nodes of Gauss' rule in each variable, as numpy.polynomial.legendre.leggauss "
        "gives them"
    ),
    "cubature qmc_quad": "scipy.integrate.nquad",
    "BDF DOP853 LSODA OdeSolver RK23 RK45 Radau complex_ode ode": (
        "scipy.integrate.solve_ivp, with t_eval where the solution is read on the way"
    ),
    "tanhsinh nsum": "scipy.integrate.quad, or tapegrad.scan over the terms",
}

converting("scipy.integrate._quadrature", "simpson")
borrow(HOME, "simpson trapezoid cumulative_trapezoid cumulative_simpson romb")
refuse_with_callbacks(HOME, "tplquad cubature qmc_quad tanhsinh nsum")

__all__ = ["boundaries", "nested", "quadrature", "trajectories"]
