"""What is known of a frame that is followed: whether it has changed anything."""

from __future__ import annotations

from types import FrameType
from typing import Any

from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.effects import Effects
from tapegrad.tracing.observe.observer import following


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
    return None if effects is None else (effects.count, effects.compared)
