"""What users ask to be shown of tapegrad's work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tapegrad.runtime.keyed import derived_by
from tapegrad.runtime.transformations import Jit

if TYPE_CHECKING:
    from tapegrad.insight.explaining import Explanation
    from tapegrad.insight.explorer.page import Exploration
    from tapegrad.insight.profiling import Profile


def explain(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call `f`, and say why that took what it took. Also a method: `grad(f).explain(*args)`.

    Parameters
    ----------
    f : a function that `grad`, `jit` or another of these has derived, or one written with NumPy,
        which is taken as `jit(f)`.
    args, kwargs : its arguments. The call is made, with all that it does.

    Returns
    -------
    An `Explanation`. It prints as a page, is one in notebooks, and has `to_dict()`. It says which
    variant answered; of each trace so far what had changed, from which value to which one, at
    which line, and what to do about it; which loops of the program are loops, which were unrolled
    and why; which lines each kernel computes; what is kept for the derivative; and which products,
    calls of libraries and of Python are in no fused loop.
    """
    return _derived(f).explain(*args, **kwargs)


def profile(f: Callable[..., Any], *args: Any, calls: int = 20, **kwargs: Any) -> Profile:
    """Call `f` some times, and say where the time goes. Also a method: `grad(f).profile(*args)`.

    Parameters
    ----------
    f : a function that `grad`, `jit` or another of these has derived, or one written with NumPy,
        which is taken as `jit(f)`.
    args, kwargs : its arguments. The calls are made, with all that they do.
    calls : how many calls are measured, of which `seconds` is the median.

    Returns
    -------
    A `Profile`: the seconds of a call; of each kernel, each call of NumPy's between them, and
    Python's part, measured in one call more with a clock between them; of each line of the
    program, forward and in reverse, which is a share of its kernel's time by the work that it has
    and marked so, but measured where the function is played; bytes and operations beside what this
    machine does of them; and memory. It prints, and has `to_dict()`, `plot()` and
    `save("trace.json")` for Perfetto.
    """
    return _derived(f).profile(*args, calls=calls, **kwargs)


def explore(f: Callable[..., Any], *args: Any, calls: int = 20, **kwargs: Any) -> Exploration:
    """Call `f` some times, and show on one page what it does. Also a method:
    `grad(f).explore(*args)`; and a command: `python -m tapegrad explore program.py:f`.

    Parameters
    ----------
    f : a function that `grad`, `jit` or another of these has derived, or one written with NumPy,
        which is taken as `jit(f)`.
    args, kwargs : its arguments. The calls are made, with all that they do, and one more is traced.
    calls : how many calls are measured.

    Returns
    -------
    An `Exploration`. `save("page.html")` writes the page, one file that needs no network, and in
    notebooks it is shown. It has the program with time and memory by line; the tape, its loops,
    their source and machine code, in which lines that belong together are shown together; the tape
    before and after each pass; its graph; memory over time; kernels beside what this machine does;
    guards, traces and their causes. The libraries that this takes are in `tapegrad[explore]`.
    """
    return _derived(f).explore(*args, calls=calls, **kwargs)


def _derived(f: Callable[..., Any]) -> Any:
    return f if hasattr(f, "explain") else derived_by(None, f, Jit(), None)
