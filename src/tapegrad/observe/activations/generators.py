"""Records of random generators: where one is created, and where one draws."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from tapegrad.core.named import own_attribute
from tapegrad.core.statics import is_generator, is_watched
from tapegrad.core.trees import flatten
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.queried import advice_about_draw
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects import randomness
from tapegrad.observe.program.frames import MISSING
from tapegrad.observe.program.source import is_told
from tapegrad.primitives.base import Value

_SETTING = ("seed", "set_state", "setstate")  # methods that set the state
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)


def generator_of(f: Any, args: Sequence[Any]) -> Any:
    """The random generator whose method `f` is; None if `f` is no such method."""
    if f is randomness.seed():
        return randomness.numpys()
    held = own_attribute(f, "__self__") if type(f) in (types.MethodType, *_BOUND) else None
    kinds = randomness.kinds()
    if isinstance(held, kinds):
        return held
    if args and isinstance(args[0], kinds):
        own = getattr(type(args[0]), own_attribute(f, "__name__", ""), None)
        return args[0] if own is f else None
    return None


def generator_drawn_from(a: Activation, f: Any, args: Sequence[Any]) -> Any:
    """The generator of a method call whose draws are recorded by a replacement; None if the method
    is called as it is."""
    generator = generator_of(f, args)
    if not a.users or not is_generator(generator):
        return None
    # A generator created from a seed during the run draws the same numbers at each call.
    trace, traced = dispatch.trace(), any(isinstance(x, (Value, list, tuple)) for x in args)
    in_rounds = trace is not None and trace.drawing is not None
    known = in_rounds or a.o.is_outside(generator) or a.o.stream_of(generator) is not None
    return generator if known or (traced and f.__name__ not in _SETTING) else None


def made_generator(o: RunRecord, made: Any, seeded: bool, args: Sequence[Any]) -> None:
    """Record that a random generator, or a bit generator, was created."""
    o.quiet = False
    if seeded and not any(id(x) in o.unseeded for x in args):
        return
    o.unseeded[id(made)] = made
    bits = getattr(made, "bit_generator", None)
    o.unseeded[id(bits)] = bits
    if not isinstance(made, randomness.kinds()):
        o.reads.use_once(type(made).__name__)


def draws_unseeded(o: RunRecord, generator: Any) -> None:
    """Record a draw from a generator without a seed: it has other numbers at each call. Draws by
    Python's library, for names of files and locks, don't affect results, and aren't refused."""
    frame: Any = None if o.running is None else o.running.frame
    o.reads.use_once(type(generator).__name__, advice_about_draw(frame))
    while frame is not None and frame.f_globals.get("__name__") == "random":
        frame = frame.f_back
    if frame is None or is_told(frame.f_code.co_filename):
        o.refuse(randomness.unseeded(o.label))


def of_generator(o: RunRecord, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Then | None:
    """Record a call of a generator's method; `args` begin with the generator."""
    if (
        f.__name__ in _SETTING
        and o.reads.place(args[0]) is None
        and not randomness.is_global(args[0])
    ):
        given = any(x is not None for x in (*args[1:], *kwargs.values()))

        def then(result: Any) -> None:
            if result is not MISSING and given:
                o.unseeded.pop(id(args[0]), None)
            elif result is not MISSING:
                o.unseeded[id(args[0])] = args[0]

        return then if f.__name__ == "seed" else both(o.taken([*args[1:], *kwargs.values()]), then)
    if id(args[0]) in o.unseeded:
        draws_unseeded(o, args[0])
    note = o.taken([*args[1:], *kwargs.values()])  # later draws depend on these
    return both(note, o.draws(args[0]))


def taken_by_a_derivative(o: RunRecord, values: Sequence[Any]) -> Then | None:
    """Record that a derivative is called with these values. It doesn't matter which generators are
    among them, and draws are recorded where they happen."""
    values = [x for x in values if not is_watched(x)]
    o.drawn_from = {id(x) for x in flatten(values)[0] if is_generator(x)}
    try:
        return o.taken(values)
    finally:
        o.drawn_from = set()
