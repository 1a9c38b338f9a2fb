"""The streams of random numbers: where a call finds them, and where it leaves them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.fuzz.programs import Call
from tests.fuzz.states import held


def left(call: Call, f: Callable[..., Any]) -> Any:
    """Where the global streams are, and those of the generators that the program captures."""
    captured = []
    for name in call.captured():
        found = held(f, name)
        if isinstance(found, np.random.Generator):
            captured.append((name, found.bit_generator.state))
        elif isinstance(found, np.random.RandomState):
            captured.append((name, found.get_state(legacy=False)))
    return np.random.get_state(legacy=False), random.getstate(), captured


def assert_left(call: Call, f: Callable[..., Any], how: str) -> None:
    """A call that has just ended leaves the streams where plain NumPy leaves them."""
    if not call.program.draws:
        return
    found = left(call, f)
    plain = call.program.function()
    call.enter(plain)
    plain(*call.args())
    np.testing.assert_equal(found, left(call, plain), f"{how}, {call}: another place in a stream")
