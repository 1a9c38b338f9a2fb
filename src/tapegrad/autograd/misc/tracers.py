"""Functions that are traced once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["const_graph"]


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function with these first arguments. Nothing else is needed: each derivative is traced
    once, and again only where the function branches differently."""
    return functools.partial(fun, *args, **kwargs)
