"""Derivatives by Dask, for losses whose data come in parts: larger than memory, or on a cluster.

    import tapegrad.dask as td

    loss(params, x, y)                                       # a function of NumPy arrays
    td.value_and_grad(loss, over=("x", "y"))(params, X, Y)   # X, Y: dask arrays

`over` names the arguments that come in parts. The function is called with one part of each, as
NumPy arrays, and with the other arguments unchanged. Its derivative is one compiled call for each
part. Dask schedules the calls: by default in threads, otherwise by the chosen scheduler or client.
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
