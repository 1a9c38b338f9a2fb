"""NumPy, with all of its names.

Functions that make arrays follow traced values wherever they are called from, as in
`tapegrad.numpy`, also in users' rules. Functions that join arrays take any iterable.

The modules (`linalg`, `fft`, `random`, ...) are NumPy's. HIPS autograd's own additions are
`numpy_boxes`, `numpy_wrapper`, `numpy_vjps`, `numpy_vspaces`, and `make_diagonal`.
"""

import sys
from typing import Any

import numpy

import tapegrad.numpy as own
from tapegrad.autograd.aliases import Additions
from tapegrad.autograd.numpy import numpy_boxes as numpy_boxes
from tapegrad.autograd.numpy import numpy_vjps as numpy_vjps
from tapegrad.autograd.numpy import numpy_vspaces as numpy_vspaces
from tapegrad.autograd.numpy import numpy_wrapper as numpy_wrapper
from tapegrad.autograd.numpy.numpy_wrapper import make_diagonal as make_diagonal

sys.meta_path.insert(0, Additions(__name__, "numpy"))

__all__ = [
    *[name for name in numpy.__all__ if hasattr(numpy, name)],
    *("make_diagonal", "numpy_boxes", "numpy_vjps", "numpy_vspaces", "numpy_wrapper"),
]
globals().update({name: getattr(own, name) for name in __all__ if hasattr(numpy, name)})
globals().update({name: getattr(numpy_wrapper, name) for name in numpy_wrapper.JOINING})
__version__ = numpy.__version__


def __getattr__(name: str) -> Any:
    return getattr(numpy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(numpy)})
