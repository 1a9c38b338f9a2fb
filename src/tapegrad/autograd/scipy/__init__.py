"""SciPy itself, under these names. `signal.convolve` takes HIPS autograd's further arguments, and
`misc` has `logsumexp`, as SciPy once did."""

import importlib
import sys
from typing import Any

from tapegrad.autograd.aliases import Additions

sys.meta_path.insert(0, Additions(__name__, "scipy"))


def __getattr__(name: str) -> Any:
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error
