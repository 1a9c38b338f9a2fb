"""Values of a program while it runs: shown, checked, handed to functions, at each call.

    debug.print("loss {:.3f}", loss)
    debug.callback(history.append, loss)
    h = debug.cotangent("of h: {}", h)
    debug.breakpoint()

In a function that is traced (`grad`, `jit`, ...) `print(x)` is run by the trace alone, once. These
are part of what is traced: they run at each call, played and compiled, in each round of a loop.
Outside of all traces they do the same, at once.
"""

from __future__ import annotations

import builtins
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from tapegrad.core.frames import short_traceback
from tapegrad.core.trees import flatten, is_traced
from tapegrad.errors import ArgumentError
from tapegrad.tracing.recording.trace import is_untraced
from tapegrad.tracing.rules import callback as recording

__all__ = ["breakpoint", "callback", "cotangent", "print"]

T = TypeVar("T")


@short_traceback
def callback(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Call `f(*args, **kwargs)` with the values at this point, at each call.

        >>> seen = []
        >>> def cost(x):
        ...     y = np.sin(x)
        ...     debug.callback(seen.append, y)
        ...     return y * y
        >>> value_and_grad(cost)(0.0)
        (np.float64(0.0), np.float64(0.0))
        >>> seen
        [np.float64(0.0)]

    Parameters
    ----------
    f : any function. What it returns is ignored. What it raises reaches who has called, past an
        `except` of the function that is traced: that is over by then.
    args, kwargs : arrays, numbers, nested structures of them, and anything else, which `f` is
        passed as it was in the trace. Arrays are copies of its own.

    Notes
    -----
    The function that is traced isn't looked into: `f` may do anything. Once a call it is called for
    the value and its derivative together. In loops it is called in each round, in order; under
    `vmap` for each row, one callback after the other; what is computed of no row, once.
    """
    if not callable(f):
        raise ArgumentError(f"debug.callback needs a function, not {f!r}")
    recording.callback(f, args, kwargs, "debug.callback")


@short_traceback
def print(text: str, /, *args: Any, **kwargs: Any) -> None:
    """Print `text.format(*args, **kwargs)` with the values at this point, at each call.

        >>> jit(lambda x: debug.print("x is {:.2f}, {name}", x, name="so"))(0.5)
        x is 0.50, so

    Parameters
    ----------
    text : as for `str.format`.
    args, kwargs : what `callback` takes.
    """
    if not isinstance(text, str):
        raise ArgumentError(f'debug.print takes a text, as in debug.print("{{}}", x), not {text!r}')
    recording.callback(partial(_show, text), args, kwargs, "debug.print")


@short_traceback
def cotangent(f: Callable[[Any], Any] | str, x: T, /) -> T:
    """`x` itself. In reverse mode `f` is called with its cotangent, at each call.

        >>> def cost(x):
        ...     y = debug.cotangent("d cost / d y is {}", np.sin(x))
        ...     return 3 * y
        >>> grad(cost)(0.0)
        d cost / d y is 3.0
        np.float64(3.0)

    Parameters
    ----------
    f : a function of the cotangent, or a text, which is printed with it.
    x : arrays, numbers, and nested structures of them.

    Returns
    -------
    The same structure with the same values; arrays are new ones. Go on with these: what is computed
    of `x` has no part in this cotangent.

    Notes
    -----
    Cotangents mirror `x`, with None for what has none. `f` isn't called where nothing that is
    differentiated depends on `x`.
    """
    if not (callable(f) or isinstance(f, str)):
        raise ArgumentError(f"debug.cotangent needs a function or a text, not {f!r}")
    return recording.cotangent(
        partial(_show, f) if isinstance(f, str) else f, x, recording.COTANGENT
    )


def breakpoint(**values: Any) -> None:
    """Pause here at each call, as Python's `breakpoint()`, with these values as variables.

        def cost(x):
            y = np.sin(x)
            debug.breakpoint()
            return y * y

    In a function that is traced the pause comes when a call has come to this line, the first one
    and later ones, played or compiled: not in the trace, but with the values of the call. What the
    debugger shows is this line, with copies of the values as its variables, plain arrays and
    numbers; the function itself isn't there to be stepped through. Outside of traces it is.

    Parameters
    ----------
    values : what is shown, by name. If none are given, the variables of the function that calls
        this that hold arrays, numbers and texts, and nested structures of them.

    Notes
    -----
    `sys.breakpointhook` decides which debugger that is, as for `breakpoint()`: PYTHONBREAKPOINT
    names it, and with PYTHONBREAKPOINT=0 nothing pauses. In loops it pauses in each round.
    """
    frame = sys._getframe(1)
    shown = values or _variables(frame)
    if is_untraced(shown):
        _stop(frame)
        return
    code = frame.f_code
    place = code.co_filename, frame.f_lineno, code.co_name, str(frame.f_globals.get("__name__"))
    recording.callback(partial(_pause, *place), (), shown, "debug.breakpoint")


def _variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a function that hold arrays, numbers and texts, and structures of them."""
    held = frame.f_locals
    found = {name: x for name, x in held.items() if all(map(_is_plain, flatten(x)[0]))}
    if type(held) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        held.clear()  # a copy, which the frame would keep
    return found


def _is_plain(x: Any) -> bool:
    return x is None or isinstance(x, (str, bool)) or is_traced(x)


def _stop(frame: FrameType) -> None:
    """Call the hook for this frame; Python's own would stop in the one that calls it."""
    name = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
    if sys.breakpointhook is sys.__breakpointhook__ and name == "pdb.set_trace":
        import pdb

        pdb.Pdb().set_trace(frame)
    else:
        sys.breakpointhook()


def _pause(file: str, line: int, name: str, module: str, /, **values: Any) -> None:
    """Call the hook in a frame that stands at this line, and goes on to the next one."""
    text = "\n" * (line - 1) + "__import__('sys').breakpointhook()\npass"
    code = compile(text, file, "exec").replace(co_name=name)
    known = sys.modules.get(module)
    exec(code, {} if known is None else vars(known), values)


for _teller in (breakpoint, callback, print, cotangent):
    # Observed runs don't look at what functions do that they are passed: later calls run these.
    vars(_teller).update(notes=(Callable,), tells=True)


def _show(text: str, *args: Any, **kwargs: Any) -> None:
    builtins.print(text.format(*args, **kwargs))
