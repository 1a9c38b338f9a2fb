"""Iterators and queues that exist before the run, from which a program takes the next value.

Each call of the derivative takes a value before anything else, and numbers in it are inputs of the
tape. All variants that are tried in that call, and the trace, get the same value.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from tapegrad.core.named import own_attribute
from tapegrad.observe.guards.descriptions import is_source
from tapegrad.observe.packages.callbacks import sets_variables


def takes_next(o: Any, f: Any, args: Sequence[Any]) -> bool:
    """Whether a call takes the next value from an iterator or queue that exists before the run. The
    value can't be put back. So no guard may precede the call, and the run must not have changed
    anything that a generator reads."""
    name, x = own_attribute(f, "__name__", ""), own_attribute(f, "__self__")
    x = args[0] if args and (x is None or isinstance(x, types.ModuleType)) else x
    if type(name) is not str or name not in _NEXT or not is_source(x) or o.reads.place(x) is None:
        return False
    if type(x) is types.GeneratorType and sets_variables(x.gi_code):
        return False
    changed = o.reads.written or o.reads.postponed or o.reads.mutated or o.states
    return not (changed or o.trace.builder.guards)


_NEXT = ("next", "__next__", "get", "get_nowait")
