"""Derivatives of plain NumPy functions, compiled.

    from tapegrad import grad
    dloss = grad(loss)
"""

from tapegrad.api import (
    cache_info as cache_info,
)
from tapegrad.api import (
    clear_cache as clear_cache,
)
from tapegrad.api import (
    defvjp as defvjp,
)
from tapegrad.api import (
    grad as grad,
)
from tapegrad.api import (
    jit as jit,
)
from tapegrad.api import (
    primitive as primitive,
)
from tapegrad.api import (
    stop_gradient as stop_gradient,
)
from tapegrad.api import (
    trace as trace,
)
from tapegrad.api import (
    value_and_grad as value_and_grad,
)
from tapegrad.api import (
    vjp as vjp,
)
from tapegrad.testing import (
    gradcheck as gradcheck,
)
from tapegrad.tracing.custom import (
    Function as Function,
)
