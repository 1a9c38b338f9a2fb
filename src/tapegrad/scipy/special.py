"""Functions of scipy.special that aren't ufuncs. Those are primitives (`primitives/special.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.primitives.extrema import LogSumExp
from tapegrad.scipy.declaring import stands_for
from tapegrad.tracing.frontend.reducing import reduced

HOME = "scipy.special"


@stands_for(HOME)
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    """log(sum(b exp(a))) over `axis`, without overflow."""
    if b is not None:
        top = np.max(a, axis=axis, keepdims=True)
        total = np.log(np.sum(b * np.exp(a - top), axis=axis, keepdims=keepdims))
        return total + (top if keepdims else np.squeeze(top, axis))
    return reduced(LogSumExp, a, axis, keepdims)


@stands_for(HOME)
def softmax(x: Any, axis: Any = None) -> Any:
    """exp(x) / sum(exp(x)) over `axis`: x_i -> exp(x_i - log(sum(exp(x))))."""
    return np.exp(x - logsumexp(x, axis=axis, keepdims=True))
