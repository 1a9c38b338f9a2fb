"""What is known of a frame that is followed: whether it has changed anything, and what it asks."""

from __future__ import annotations

from types import FrameType
from typing import Any

from tapegrad.core.handlers import let_through
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import following
from tapegrad.observe.sides.effects import Effects
from tapegrad.observe.sides.owned import has_made


def effects_in(frame: FrameType) -> Effects | None:
    """What counts what this frame changes; None where nobody looks."""
    here, a = following.observer, getattr(frame.f_trace, "__self__", None)
    if here is None or not isinstance(a, Activation) or a.o is not here:
        return None
    here.effects = here.effects or Effects()
    return here.effects


def changes(frame: FrameType) -> Any:
    """What tells, when it is asked again, whether anything has been changed in between but this
    frame's variables and traced arrays; None where nobody looks."""
    effects = effects_in(frame)
    return None if effects is None else (effects.lasting, effects.compared)


def rebound() -> list[Any]:
    """The loops of the run that is observed which must be known to make a round."""
    here = following.observer
    return [] if here is None or here.effects is None else here.effects.rebound()


def streams() -> list[Any]:
    """The random numbers that the run that is observed draws ahead."""
    return [] if following.observer is None else [*following.observer.ahead.values()]


def note_turn(x: Any, condition: Any, found: bool) -> bool | None:
    """The truth of a traced value is asked for, as for that of `condition`: what is answered, if
    that isn't guarded."""
    here = following.observer
    if here is not None:
        try:
            answer: bool | None = dispatch.asked(here, x, condition, found)
            return answer
        except Exception as error:
            let_through(error)
            here.fault(error)
    return None


def is_made_here(x: Any) -> bool:
    """Whether the run that is observed has made an object, so that nobody else has it."""
    return following.observer is not None and has_made(following.observer, x)
