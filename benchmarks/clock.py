"""Timing: of short calls, and with a limit."""

import contextlib
import gc
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any


class OutOfTime(BaseException):
    """What was measured used up its time limit. No `Exception`: an engine that goes on when its
    compiler fails isn't to go on now."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in what runs too long, where the platform can interrupt it."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    late = f"no answer within {seconds:g} s"
    expired = False

    def stop(_: int, frame: Any) -> None:
        nonlocal expired
        if any(getattr(call, "__code__", None) is frame.f_code for call in gc.callbacks):
            signal.setitimer(signal.ITIMER_REAL, 0.01, 5.0)  # what is raised in there is lost
            return
        expired = True
        raise OutOfTime(late)

    before = signal.signal(signal.SIGALRM, stop)
    # Again and again, since what is raised in a destructor is lost, too.
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)
    try:
        yield
    except BaseException as error:  # what was interrupted may have made another error of it
        if expired:
            raise OutOfTime(late) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def nanoseconds(call: Callable[[], Any]) -> float:
    """The median time of a call, over samples of a millisecond and more."""
    number = repeats(call)
    return statistics.median(seconds(call, number) / number for _ in range(101)) * 1e9


def repeats(call: Callable[[], Any], wanted: float = 1e-3) -> int:
    """How many calls make a sample of this many seconds, or up to twice that."""
    number, spent = 1, 0.0
    while spent < wanted:
        number *= 2
        spent = seconds(call, number)
    return number


def seconds(call: Callable[[], Any], number: int = 1) -> float:
    """What this many calls take."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - start
