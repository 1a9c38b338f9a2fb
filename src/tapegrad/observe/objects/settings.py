"""Settings of libraries, which their functions read without being passed them.

A call of SciPy's or pandas' is one step, whose inside isn't looked at, so what it may read there is
named here: the options of pandas, and SciPy's workers, backends and errors of special functions;
NumPy's, of how arrays are printed, and those of decimal numbers. As they were at the trace they
have to be at a later call.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def note_settings(reads: Any, library: str) -> None:
    """A function of a library is called, or a text made of its arrays. What it may read is what
    there is now, the first time: all that changes it in the run follows from that."""
    word, told = _TOLD[library]
    _note(reads, (word, library), f"settings({library!r})", told(), word)


def note_warning(reads: Any, category: Any) -> None:
    """The program warns, which is an error where the filters make one of it."""
    text = f"errors_of({reads._value(category)})"
    _note(reads, ("warnings", category), text, errors_of(category), "the filters of warnings")


def note_cache(reads: Any, f: Any, word: str, x: Any) -> None:
    """A function of functools.lru_cache is called: what it has remembered it has to keep. That is
    plain numbers at the next call, where it is traced values now; one that the function makes is
    made anew then."""
    if hasattr(x, "_trace") and not x._is_constant():
        if reads.place(f) is not None:
            reads.lost(word)
        reads._first["cache", id(f), id(x)] = f, x
    hits, misses, _, _ = f.cache_info()
    text = f"keeps({reads._value(f)}, {hits}, {misses})"
    if reads.place(f) is not None and ("cache", id(f)) not in reads._first:
        reads._first["cache", id(f)] = None
        reads.found(text, True, word)


def traced_in_caches(reads: Any) -> list[tuple[Any, Any]]:
    """Such functions, each with a traced value that it has remembered."""
    return [found for key, found in reads._first.items() if key[0] == "cache" and found]


def keeps(f: Any, hits: int, misses: int) -> bool:
    """Whether a cache has left nothing out since it had counted so many hits and misses: it has
    been neither emptied, which counts anew, nor filled up, where a miss takes another's place."""
    info = f.cache_info()
    has_room = info.maxsize is None or info.currsize < info.maxsize
    return bool(
        info.hits >= hits and (info.misses == misses or (has_room and info.misses > misses))
    )


def _note(reads: Any, key: Any, text: str, found: Any, word: str) -> None:
    if key not in reads._first:
        reads._first[key] = found
        reads.found(f"{text} == {reads._value(found)}", True, word)


def check_settings(reads: Any) -> None:
    """At the end of a run: a setting of NumPy's that it leaves changed later calls wouldn't."""
    for library in ("numpy", "errors"):
        word, told = _TOLD[library]
        if reads._first.get((word, library), told()) != told():
            reads.lost(word)


def settings(library: str) -> Any:
    """What decides, besides its arguments, what a function of this library does."""
    return _TOLD[library][1]()


def _pandas() -> Any:
    config: Any = sys.modules.get("pandas._config.config")
    if config is None:
        return None
    places = _known.get(len(config._registered_options))
    if places is None or places[0][0] is not config._global_config:
        places = _known[len(config._registered_options)] = [
            (config._global_config, ""),
            *_places(config._global_config),
        ]
    return [x[key] for x, key in places[1:]]


_known: dict[int, list[tuple[Any, str]]] = {}  # where pandas keeps so many options


def _places(options: dict[str, Any]) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = []
    for key, x in options.items():
        found += _places(x) if type(x) is dict else [(options, key)]
    return found


def _scipy() -> Any:
    fft, special = sys.modules.get("scipy.fft"), sys.modules.get("scipy.special")
    backends = sys.modules.get("scipy._lib.uarray")
    return (
        None if fft is None else fft.get_workers(),
        None if backends is None else backends.get_state()._pickle(),
        None if special is None else special.geterr(),
    )


def decimal_context() -> Any:
    """What decides how Python's decimal numbers are rounded, and when they raise."""
    c = sys.modules["decimal"].getcontext()
    traps = tuple(kind for kind, on in c.traps.items() if on)
    return c.prec, c.rounding, c.Emin, c.Emax, c.capitals, c.clamp, traps


_TOLD: dict[str, tuple[str, Callable[[], Any]]] = {
    "errors": ("np.seterr", np.geterr),
    "numpy": ("np.set_printoptions", np.get_printoptions),
    "pandas": ("an option of pandas", _pandas),
    "scipy": ("a setting of SciPy", _scipy),
    "decimal": ("decimal's context", decimal_context),
}


def errors_of(category: type[Warning]) -> Any:
    """Which warnings of a category are errors, by the filters that there are: those that may have
    a say, up to the first that has it for all of them."""
    asked: list[Any] = []
    for action, text, kind, module, line in warnings.filters:
        if issubclass(category, kind):
            if text is None and module is None and not line:
                asked.append(action == "error")
                break
            asked.append((action == "error", text, module, line))
    return asked
