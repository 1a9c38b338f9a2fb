"""Queries about the observed run: what a frame has changed, and which answers are registered."""

from __future__ import annotations

from types import FrameType
from typing import Any

from tapegrad.core.handlers import let_through
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import following
from tapegrad.observe.sides.effects import Effects
from tapegrad.observe.sides.owned_objects import has_made


def effects_in(frame: FrameType) -> Effects | None:
    """The counter of the changes that this frame makes. None if the frame isn't followed."""
    here, a = following.observer, getattr(frame.f_trace, "__self__", None)
    if here is None or not isinstance(a, Activation) or a.o is not here:
        return None
    here.effects = here.effects or Effects()
    return here.effects


def changes(frame: FrameType) -> Any:
    """A state that compares equal later if, in between, only this frame's variables and traced
    arrays have changed. None if the frame isn't followed."""
    effects = effects_in(frame)
    return None if effects is None else (effects.lasting, effects.compared)


def rebound() -> list[Any]:
    """The notes of loops that must be known to make at least one round."""
    here = following.observer
    return [] if here is None or here.effects is None else here.effects.rebound()


def streams() -> list[Any]:
    """The streams of random numbers that the observed run draws ahead."""
    return [] if following.observer is None else [*following.observer.ahead.values()]


def note_turn(x: Any, condition: Any, found: bool) -> bool | None:
    """The truth to return for a traced value, whose branch condition is `condition` and whose truth
    in this run is `found`. None if the truth must be guarded."""
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
    """Whether the observed run has created `x`, and no other code holds it."""
    return following.observer is not None and has_made(following.observer, x)
