"""Iterators and queues of the outside, from which a program takes the next value.

Each call of the derivative takes its own, before anything else, and numbers in it are inputs of the
tape. Whoever needs it in that call, a variant that is tried or a trace, gets the same.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from tapegrad.observe.guards.told import is_source
from tapegrad.observe.packages.called_back import sets_variables


def takes_next(o: Any, f: Any, args: Sequence[Any]) -> bool:
    """Whether a call takes the next value from an iterator or a queue of the outside. Nobody can
    put it back, so nothing may have decided before whether the program comes here, nor may the run
    have changed what a generator reads."""
    name, x = getattr(f, "__name__", ""), getattr(f, "__self__", None)
    x = args[0] if args and (x is None or isinstance(x, types.ModuleType)) else x
    if type(name) is not str or name not in _NEXT or not is_source(x) or o.reads.place(x) is None:
        return False
    if type(x) is types.GeneratorType and sets_variables(x.gi_code):
        return False
    changed = o.reads.written or o.reads.postponed or o.reads.mutated or o.states
    return not (changed or o.trace.builder.guards)


_NEXT = ("next", "__next__", "get", "get_nowait")
