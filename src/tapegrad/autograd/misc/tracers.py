"""Functions that are traced once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["const_graph"]


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function with these first arguments. Nothing needs doing: each derivative is traced once
    here, and again where the function takes another way."""
    return functools.partial(fun, *args, **kwargs)
