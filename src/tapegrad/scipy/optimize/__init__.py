"""Traceable versions of scipy.optimize. Most are in `roots.py`, `minima.py`, `fits.py`,
`linear.py`, `older.py` and `global_minima.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize as theirs

from tapegrad.extending import stands_for
from tapegrad.extending.tapes import Aval, ForeignCall, plain_value
from tapegrad.scipy.borrowing import borrow
from tapegrad.scipy.optimize import fits, global_minima, linear, minima, older, roots
from tapegrad.scipy.refusing import refuse_with_callbacks
from tapegrad.scipy.solver_calls import recorded

HOME = "scipy.optimize"

REFUSED = {
    "bracket": "scipy.optimize.minimize_scalar",
    "approx_fprime check_grad": "tapegrad.grad, or tapegrad.gradcheck",
}

refuse_with_callbacks(HOME, "bracket approx_fprime check_grad line_search")
borrow(HOME, "rosen rosen_der rosen_hess rosen_hess_prod")


@stands_for(HOME)
def linear_sum_assignment(cost_matrix: Any, maximize: Any = False) -> Any:
    """The assignment of rows to columns: integers, which have no derivative."""
    n = min(np.shape(cost_matrix))
    types = (Aval((n,), np.dtype(np.int64)),) * 2

    def function(costs: Any) -> Any:
        return theirs.linear_sum_assignment(costs, maximize)

    function.__name__ = "linear_sum_assignment"
    primitive = ForeignCall("linear_sum_assignment", function, types, 0)
    value = plain_value(cost_matrix)
    return tuple(recorded(primitive, [cost_matrix], function(value)))


__all__ = ["fits", "global_minima", "linear", "minima", "older", "roots"]
