"""What users ask to be shown of tapegrad's work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.insight.explaining import Explanation
from tapegrad.runtime.bound import BoundDerived
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.keyed import derived_by
from tapegrad.runtime.transformations import Jit


def explain(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call `f`, and say why that took what it took. Also a method: `grad(f).explain(*args)`.

    Parameters
    ----------
    f : a function that `grad`, `jit` or another of these has derived, or one written with NumPy,
        which is taken as `jit(f)`.
    args, kwargs : its arguments. The call is made, with all that it does.

    Returns
    -------
    An `Explanation`. It prints as a page, is one in notebooks, and has `to_dict()`. It says which
    variant answered; of each trace so far what had changed, from which value to which one, at
    which line, and what to do about it; which loops of the program are loops, which were unrolled
    and why; which lines each kernel computes; what is kept for the derivative; and which products,
    calls of libraries and of Python are in no fused loop.
    """
    found = f if isinstance(f, (Derived, BoundDerived)) else derived_by(None, f, Jit(), None)
    return found.explain(*args, **kwargs)
