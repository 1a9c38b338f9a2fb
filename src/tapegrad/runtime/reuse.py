"""Variants that are left to other functions of the same code.

    def fit(w, a):
        for _ in range(100):
            w = w - solve(hessian(lambda w: loss(w, a))(w), ...)     each lambda another function

A cache lives as long as its function, and its variants hold the arrays that the function captured.
So a lambda that is made anew at each call would leave nothing. But its tape, machine code and
guards hold no array: guards find everything starting from the function that they are checked for.
These are kept here, by code. Another function of the same code for which the guards hold takes them
over, with the arrays that it captures itself.

Variants that would keep anything else alive aren't left: users' functions on the tape or among the
arguments, objects without weak references, random numbers, values left outside.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegrad.core.locks import new_lock
from tapegrad.core.request import Request
from tapegrad.core.trees import is_traced
from tapegrad.ir.tape import Tape
from tapegrad.observe.objects.purity import is_users_file
from tapegrad.runtime.variant import Variant

MAX_KINDS = 256  # kinds of calls; the least recently used is dropped first
MAX_VARIANTS = 16  # of one kind
MAX_KEPT_BYTES = 1 << 12  # bytes of an array that only the function has

_LASTING = {"builtins", "numpy", "weakref", "_ctypes", "ctypes", "tapegrad"}  # of lasting objects

Kind = tuple[Any, tuple[Any, ...], Any]  # (function's code, cache's path, call's key)


class Reusable:
    """A variant without the arrays that its function captured."""

    def __init__(self, variant: Variant, held: Sequence[Any]) -> None:
        self.derivation = variant.derivation.with_arrays(())
        self.held = held  # weak references to arrays, and arrays that nothing else holds
        self.state = variant.state
        self.tier = variant.tier
        self.mode = variant.tier.mode

    def variant(self, root: Any, request: Request, front: Any, label: str) -> Variant | None:
        """The variant for a function, or None if the guards fail for it."""
        arrays = [x() if isinstance(x, weakref.ref) else x for x in self.held]
        if any(x is None for x in arrays):
            return None
        if not self.state.holds(root, request.args, request.kwargs):
            return None
        derivation = self.derivation.with_arrays(tuple(arrays))
        return Variant(derivation, self.state, self.mode, front, label, self.tier)


_offered: OrderedDict[Kind, list[Reusable]] = OrderedDict()
_lock = new_lock()


def offer(owner: Any, path: tuple[Any, ...], request: Request, variant: Variant) -> None:
    """Keep a variant for functions of the same code, if possible."""
    kind = _code(owner, path), path, request.key
    held = _held(variant) if kind[0] and _is_plain(path, request, variant) else None
    if held is None:
        return
    left = Reusable(variant, held)
    variant.share()
    with _lock:
        same = _offered.setdefault(kind, [])
        same.insert(0, left)
        del same[MAX_VARIANTS:]
        _offered.move_to_end(kind)
        while len(_offered) > MAX_KINDS:
            _offered.popitem(last=False)


def offered_by(owner: Any, path: tuple[Any, ...], request: Request) -> list[Reusable]:
    """The variants that functions of the same code left for such a call."""
    kind = _code(owner, path), path, request.key
    with _lock:
        known = [*_offered.get(kind, ())]
        if known:
            _offered.move_to_end(kind)
    return known


def forget(owner: Any = None, path: tuple[Any, ...] = ()) -> None:
    """Drop the variants left by functions of this code, or all."""
    with _lock:
        for kind in [*_offered]:
            if owner is None or kind[0] == _code(owner, path):
                del _offered[kind]


def _code(owner: Any, path: Sequence[Any] = ()) -> Any:
    """The code that functions share, or the class of a method's instance. None for code outside of
    the user's program, not all of whose reads are observed."""
    if type(owner) is partial:
        owner = owner.func
    if type(owner) is types.FunctionType:
        return owner.__code__ if is_users_file(owner.__code__.co_filename) else None
    method = path[0] if path else None
    of_users = type(method) is types.FunctionType and is_users_file(method.__code__.co_filename)
    return type(owner) if of_users and "<locals>" not in type(owner).__qualname__ else None


def _is_plain(path: Iterable[Any], request: Request, variant: Variant) -> bool:
    """Whether a variant and its key contain nothing of the user's but the code."""
    traced, tape = variant.traced, variant.tape
    leaves = [x for at, x in zip(traced.outputs, traced.leaves, strict=True) if at is None]
    fields = [x for step in path for x in getattr(step, "__dict__", {}).values()]
    return not (
        variant.state.never
        or variant.state.asks
        or traced.draws is not None
        or traced.keeping is not None
        or traced.has_tracers
        or variant.derivation.left
        or tape.captured
        or any(map(callable, fields))
        or not all(is_traced(x) or _is_constant(x) for x in request.leaves)
        or not all(map(_is_constant, leaves))
        or _is_foreign(tape)
        or not all(map(_lasts, variant.state.values))
    )


def _lasts(x: Any) -> bool:
    """Whether a value that guards compare with may be kept: nothing that a user makes anew."""
    if isinstance(x, type):
        return "<locals>" not in x.__qualname__
    return type(x) is not types.FunctionType and type(x).__module__.partition(".")[0] in _LASTING


def _is_constant(x: Any) -> bool:
    return x is None or type(x) in (bool, int, float, complex, str)


def _is_foreign(tape: Tape) -> bool:
    return any(
        call.primitive.foreign or any(map(_is_foreign, call.primitive.tapes)) for call in tape.calls
    )


def _held(variant: Variant) -> list[Any] | None:
    """The captured arrays, weakly if a guard finds them; None if one can't be kept."""
    found = [r() for r in variant.state.values if type(r) is weakref.ref]
    reached = {id(x) for x in found if isinstance(x, np.ndarray)}
    held: list[Any] = []
    for x in variant.traced.captured:
        if id(x) in reached:
            held.append(weakref.ref(x))
        elif isinstance(x, np.ndarray) and x.base is None and x.nbytes <= MAX_KEPT_BYTES:
            held.append(x)
        else:
            return None
    return held
