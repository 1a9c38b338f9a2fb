"""Transforms of SciPy's that are objects, of traced arrays: their own methods."""

from __future__ import annotations

import functools
from typing import Any

from scipy import signal

from tapegrad.scipy.borrowing import borrow_classes
from tapegrad.scipy.declaring import answering, any_traced, declare_method
from tapegrad.tracing.answers import declare, declare_calls
from tapegrad.tracing.frontend import borrowing
from tapegrad.tracing.frontend.accepting import accepted
from tapegrad.tracing.observe.observer import unobserved

HOME = "scipy.signal"


def _answer(kind: type, name: str) -> Any:
    original = getattr(kind, name)
    own = borrowing.borrowed(original, original)
    return answering(own, original, f"{kind.__name__}.{name}")


for _kind in borrow_classes(HOME, "CZT ZoomFFT"):
    _called = _answer(_kind, "__call__")
    declare_calls(_kind, _called, when=any_traced)
    if "__call__" in vars(_kind):
        declare_method(_kind, "__call__", _called)  # for runs that aren't observed
for _kind in borrow_classes(HOME, "ShortTimeFFT"):  # an older SciPy lacks it
    for _name in ("stft", "stft_detrend", "spectrogram", "istft"):
        declare_method(_kind, _name, _answer(_kind, _name))

# ---- linear systems


def _making(kind: type) -> Any:
    own = borrowing.borrowed(kind, kind)

    @functools.wraps(kind, updated=())
    @unobserved
    def made(*args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            return kind(*args, **kwargs)
        return accepted(kind, args, kwargs, lambda: own(*args, **kwargs), f"{HOME}.{kind.__name__}")

    return made


for _name in ("lti", "dlti", "StateSpace", "TransferFunction", "ZerosPolesGain"):
    declare(signal, _name, _making(getattr(signal, _name)), when=any_traced)
