"""Random draws in a traced function: generators, their states, and the errors for refused draws.

The run is observed, so each call of a generator's method is seen. Numbers that the user's program
draws are an input of the tape (`frontend/python/draws.py`). A generator that the function creates
from a seed draws the same numbers each time, as in plain NumPy. Draws from a generator created
without a seed are refused, and so are draws in code that is traced once for all rounds.
"""

from __future__ import annotations

import sys
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.errors import RandomnessError
from tapegrad.observe.objects.purity import is_librarys_code
from tapegrad.observe.program.source import at_line

FIX = (
    "A trace runs once, so each later call would get the same numbers. Draw from a generator that "
    "the function is passed or finds outside, such as np.random.default_rng(seed), or draw outside "
    "and pass the numbers in"
)


def _loaded(name: str, needs: str) -> Any:
    """A module, if it is loaded: a program that holds a generator has loaded its module."""
    module = sys.modules.get(name)
    return module if hasattr(module, needs) else None  # another thread may be importing it


def asks_system(frame: FrameType) -> bool:
    """Whether this frame draws from the system, as a generator without a seed does. Exceptions are
    copies of generators, and a `RandomState` that `check_random_state` of a package creates for a
    seed: these are created unseeded, and set their state next."""
    code, back = frame.f_code, frame.f_back
    if not (code.co_qualname.startswith("SystemRandom.") and is_librarys_code(code)):
        return False
    if back is None:
        return True
    is_copy = back.f_globals.get("__name__") == "numpy.random._pickle"
    is_seeded = back.f_code.co_name == "check_random_state" and "seed" in back.f_locals
    return not (is_copy or (is_seeded and back.f_locals["seed"] is not None))


def kinds() -> tuple[type, ...]:
    """The classes of generators whose modules are loaded."""
    python, numpy = _loaded("_random", "Random"), _loaded("numpy.random", "RandomState")
    pythons = () if python is None else (python.Random,)
    if numpy is None:
        return pythons
    return (*pythons, numpy.Generator, numpy.RandomState, numpy.BitGenerator)


def numpys_kinds() -> tuple[type, ...]:
    """NumPy's own classes of generators, if they are loaded."""
    numpy = _loaded("numpy.random", "RandomState")
    return () if numpy is None else (numpy.Generator, numpy.RandomState)


def numpys() -> Any:
    """The generator behind `np.random.normal`."""
    return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)


def seed() -> Any:
    """The function `np.random.seed`, which sets the state of that generator. It isn't a method."""
    return getattr(sys.modules.get("numpy.random.mtrand"), "seed", ())


def is_global(x: Any) -> bool:
    """Whether `x` is the generator behind `np.random.normal` or `random.random`."""
    return _global_name(x) != ""


def _global_name(x: Any) -> str:
    python, numpy = sys.modules.get("random"), sys.modules.get("numpy.random.mtrand")
    if numpy is not None and x is getattr(numpy, "_rand", None):
        return "np.random"
    return "the random module" if x is getattr(python, "_inst", ()) else ""


def is_seeded(f: Any, args: Any, kwargs: Any) -> bool | None:
    """Whether this call creates a generator from a seed; None if it creates none."""
    if not is_maker(f) or f is python_random():
        return None
    return any(x is not None for x in (*args, *kwargs.values()))


def is_maker(f: Any) -> bool:
    """Whether `f` creates generators from seeds."""
    module = own_attribute(f, "__module__") or ""
    if not isinstance(module, str) or not module.startswith("numpy.random"):
        return f is python_random()
    return f is getattr(sys.modules["numpy.random"], "default_rng", None) or isinstance(f, type)


def python_random() -> Any:
    """Python's class of generators."""
    return getattr(sys.modules.get("random"), "Random", sys)


def bits_of(g: Any) -> Any:
    """The source of a generator's random bits: itself, if it has no bit generator."""
    bits = getattr(g, "_bit_generator", g)
    return getattr(bits, "bit_generator", bits)


def state_of(g: Any) -> Any:
    """The state of a generator; a clock has none."""
    if isinstance(g, ModuleType):
        return None
    if hasattr(g, "getstate"):
        return g.getstate()
    if hasattr(g, "get_state"):  # with the second number of a pair, kept for the next draw
        return g.get_state(legacy=False)
    return bits_of(g).state


def put_back(g: Any, state: Any) -> None:
    """Restore the state of a generator."""
    if state is None:
        return
    if hasattr(g, "setstate"):
        g.setstate(state)
    elif hasattr(g, "set_state"):
        g.set_state(state)
    else:
        bits_of(g).state = state


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal: nested dicts of numbers and arrays, or tuples of numbers."""
    if isinstance(a, dict):
        return all(same(a[k], b[k]) for k in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


def drawn(label: str, generator: Any) -> RandomnessError:
    """The error for a draw at the running line."""
    kind = type(generator)
    name = f"{kind.__module__}.{kind.__name__}" if kind.__module__ == "random" else kind.__name__
    what = _global_name(generator) or f"a {name}"
    return RandomnessError(
        f"{label} drew random numbers from {what} while it was traced{at_line()}. {FIX}"
    )


def drawn_by(label: str, function: str) -> RandomnessError:
    """The error for a function that gets random numbers from the system."""
    return RandomnessError(
        f"{label} drew random numbers from {function} while it was traced{at_line()}. {FIX}"
    )


def drawn_once(label: str, generator: Any) -> RandomnessError:
    """The error for a draw in code that is traced once for all rounds, such as a loop's body."""
    what = _global_name(generator) or f"a {type(generator).__name__}"
    return RandomnessError(
        f"{label} draws random numbers from {what}{at_line()}, and is traced once for all rounds, "
        "which would all get the same. Draw for all of them before, as rng.normal(size=(n, 3)), "
        "and pass that in; or use a plain loop"
    )


def no_derivative(label: str, name: str) -> RandomnessError:
    """The error for a draw with a traced parameter, with respect to which it can't be
    differentiated."""
    return RandomnessError(
        f"{label} draws from {name} with a parameter that is traced{at_line()}. What is drawn "
        "jumps with that parameter, or is accepted and rejected by it, so it has no derivative "
        "along the path. Where the parameter is a constant for derivatives, draw outside of the "
        "function and pass the numbers in; else write the numbers as a function of others, as "
        "normal(m, s) is m + s * rng.standard_normal(), or use the derivative of the log "
        "probability"
    )


def unseeded(label: str) -> RandomnessError:
    """The error for a draw from a generator that was created without a seed."""
    return RandomnessError(
        f"a random generator was made without a seed, and drawn from{at_line()} while {label} was "
        f"traced, so what it draws is random. {FIX}"
    )
