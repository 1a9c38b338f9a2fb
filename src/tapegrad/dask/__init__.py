"""Derivatives of losses whose data are in parts, by Dask: larger than memory, or on many machines.

    import tapegrad.dask as td

    loss(params, x, y)                                       # a function of NumPy arrays
    td.value_and_grad(loss, over=("x", "y"))(params, X, Y)   # X, Y: dask arrays

The arguments that `over` names come in parts; the function is called with one part of each, as
NumPy arrays, and the other arguments as they are. What is derived of it is one compiled call for
each part. Dask decides where and when, in threads where no other scheduler or client is chosen.
"""

import importlib.util

if importlib.util.find_spec("dask") is None:
    raise ImportError("tapegrad.dask needs Dask: pip install 'tapegrad[dask]'")

from tapegrad.dask.derivatives import (
    grad,
    hessian,
    hvp,
    jacobian,
    jit,
    value_and_grad,
)
from tapegrad.dask.training import fit, minimise

__all__ = ["fit", "grad", "hessian", "hvp", "jacobian", "jit", "minimise", "value_and_grad"]


def __dir__() -> list[str]:
    return __all__
