"""Calls of NumPy that are made again at their place: what they recorded is recorded again.

What NumPy's functions mean is worked out by the front end, which takes far longer than what it then
records. In the rounds of a loop it comes to the same each time. So each place in the user's code
keeps a *recipe*: the calls that were recorded there, with their operands told as "the first
argument" or "the result of the second call", and what became of the result.

Why that is right: what a trace records holds for other values of the traced arguments, too, unless
a guard says otherwise. So it is determined by their types, by how they lie in memory, which of them
share it, and by the arguments that aren't traced. All this is the *key* of a recipe. There is none
where a guard was asked for, a value read, an array made, a sub-tape or a user's function recorded,
where errors of floating point are treated otherwise, or where the outcome is one that isn't
described below. Recipes are a trace's own and go with it. Unknown means the long way.

Names: `what` is called, a function or the name of a method; a *source* is where operands come from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.ir.tape import Source
from tapegrad.tracing.again import is_plain, made
from tapegrad.tracing.chains import show
from tapegrad.tracing.given import Given
from tapegrad.tracing.layout import laid_out_like
from tapegrad.tracing.learning import MADE, Recipe, learned
from tapegrad.tracing.source import source_of, told_frame
from tapegrad.tracing.trace import current_trace
from tapegrad.tracing.tracer import stand_in

MOST = 10_000  # places that a trace holds
TRIES = 8  # at a place, to keep a recipe


class Place:
    """Where a call is made; it is held with what it is known by."""

    __slots__ = ("code", "recipes", "src", "tries", "what")

    def __init__(self, code: CodeType, line: int, what: Any) -> None:
        self.code, self.what = code, what
        self.src = source_of(code, line)
        self.recipes: dict[Any, Recipe] = {}
        self.tries = 0


def applied(what: Any, args: Sequence[Any], kwargs: Any, run: Callable[[], Any]) -> Any:
    """`run()`, which records a call of `what`; by a recipe, where there is one."""
    trace = current_trace()
    if (
        trace is None
        or trace.learning is not None
        or trace.repeats
        or not is_plain(trace)
        or trace.writable is not None
        or trace.presuming
        or trace.idle
    ):
        return run()
    frame = told_frame(sys._getframe(2))
    if frame is None:
        return run()
    code = frame.f_code
    at = id(code), frame.f_lasti, id(what)
    place = trace.places.get(at)
    if place is None:
        if len(trace.places) >= MOST:
            trace.places.clear()
        trace.places[at] = Place(code, frame.f_lineno, what)
        return run()
    if place.tries >= TRIES and not place.recipes:
        return run()
    given = Given(trace)
    if not given.take(args) or (kwargs and not _take_named(given, kwargs)) or not given.settled():
        place.tries += 1
        given.values.clear()
        return run()
    recipe = place.recipes.get(given.key)
    if recipe is not None:
        done = _replayed(recipe, given, place.src)
        if done is not None:
            return done[0]
    elif place.tries < TRIES:
        place.tries += 1
        result, recipe = learned(given, place.src, run)
        if recipe is not None:
            place.recipes[given.key] = recipe
            if len(place.recipes) < TRIES:
                place.tries = 0
        return result
    given.values.clear()  # who writes to one in place counts who has it
    return run()


def _take_named(given: Given, kwargs: dict[str, Any]) -> bool:
    given.key.append(tuple(kwargs))
    return given.take(tuple(kwargs.values()))


# ---- to replay


def _replayed(recipe: Recipe, given: Given, src: Source) -> tuple[Any] | None:
    """What the call gives, in a tuple, or None if it isn't like the one that is known after all."""
    trace, tracers = given.trace, given.tracers
    for k, chain in recipe.chains:
        if tracers[k]._chain != chain:
            return None
    in_place = recipe.in_place
    if in_place is not None:
        k, at = in_place
        own = [2 * n for n, x in enumerate(tracers) if x is tracers[k]]
        for n in own:
            given.values[n] = None
        alone = tracers[k]._is_alone()
        for n in own:
            given.values[n] = tracers[k]._value
    else:
        alone, at = False, -1
    values = given.values
    values += recipe.numbers
    for number, (primitive, pick, outs) in enumerate(recipe.steps):
        try:
            if alone and number == at:
                found = primitive.update(*pick(values))
            else:
                found = primitive.evaluate(*pick(values))
        except Exception as failed:  # the long way raises it again, and notes it
            let_through(failed)
            return None
        if type(outs) is tuple:
            values += found
        else:
            values.append(found[0] if type(found) is tuple else found)
    outcome, value = recipe.outcome, None
    for var, _ in recipe.guards:
        if values[var]:
            return None  # the long way raises NumPy's error
    if outcome is MADE:
        value = values[recipe.value]
        if type(value) is not recipe.kind:
            if recipe.kind is np.ndarray or type(value) is not np.ndarray:
                return None
            value = value[()]
    operands = given.operands
    operands += recipe.literals
    last: Any = None
    for primitive, pick, outs in recipe.steps:
        if type(outs) is tuple:
            operands += trace.builder.define(primitive, pick(operands), outs, src, trace.reason)
        else:
            last = made(trace, primitive, pick(operands), outs, src, recipe.cls, value)
            operands.append(last._operand)
    for var, error in recipe.guards:
        trace.guard(stand_in(trace, operands[var], values[var]), False, error, src)
    for k, var in recipe.writes:
        owner = tracers[k]._owner
        trace.note_write(owner, src)
        owner._operand = operands[var]
        owner._value = laid_out_like(values[var], owner._value)
        owner._version += 1
    for k, var, lag in recipe.read:
        view = tracers[k]
        view._operand, view._value = operands[var], values[var]
        view._version = view._root._version - lag
    if outcome is not MADE:
        return (None if outcome is None else tracers[outcome],)
    out = last
    if recipe.value != len(operands) - 1 or type(recipe.steps[-1][2]) is tuple:
        out = recipe.cls(trace, operands[recipe.value], value)
    out._ordered = recipe.ordered
    base = recipe.base
    if base is not None:
        if recipe.lone:  # a view of an array that nobody has but it
            root: Any = stand_in(trace, operands[base], values[base])
            root._ordered = recipe.ordered
            show(out, root, recipe.chain)
        else:
            show(out, tracers[base]._owner, (*tracers[base]._chain, *recipe.chain))
        out._ordered = True
    return (out,)
