"""Derivatives of plain NumPy functions, compiled.

from tapegrad import grad
dloss = grad(loss)
"""

from tapegrad import late as _late

with _late.no_forks():  # whose children would wait for ever for what is half imported
    from tapegrad import methods as methods
    from tapegrad import random as random
    from tapegrad.api import (
        cache_info,
        clear_cache,
        defvjp,
        grad,
        jit,
        primitive,
        set_num_threads,
        simplegrad,
        stop_gradient,
        trace,
        value_and_grad,
        vjp,
    )
    from tapegrad.testing import gradcheck
    from tapegrad.tracing.custom import Function

__version__ = "0.1.0"

__all__ = [
    "Function",
    "cache_info",
    "clear_cache",
    "defvjp",
    "grad",
    "gradcheck",
    "jit",
    "primitive",
    "set_num_threads",
    "simplegrad",
    "stop_gradient",
    "trace",
    "value_and_grad",
    "vjp",
]
