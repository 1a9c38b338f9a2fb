"""Settings of libraries, which their functions read without being passed them.

A call of SciPy or pandas is one step, whose code isn't followed. So the settings that it may read
are listed here: the options of pandas; SciPy's workers, backends and errors of special functions;
NumPy's print options and error handling; and the context of decimal numbers. A later call must find
the values of the trace.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def note_settings(reads: Any, library: str) -> None:
    """Guard a library's settings: one of its functions is called, or a text made of its arrays.
    Only the first values in a run matter: changes by the run itself follow from them."""
    word, told = _TOLD[library]
    _note(reads, (word, library), f"settings({library!r})", told(), word)


def note_warning(reads: Any, category: Any) -> None:
    """Guard whether the filters turn a warning of this category into an error: the program
    warns."""
    text = f"errors_of({reads._value(category)})"
    _note(reads, ("warnings", category), text, errors_of(category), "the filters of warnings")


def note_cache(reads: Any, f: Any, word: str, x: Any) -> None:
    """Guard that a function of functools.lru_cache keeps the results that it has cached. A traced
    result isn't valid at the next call, so the tape is used once. A cache that the function itself
    creates is created again at each call."""
    if hasattr(x, "_trace") and not x._is_constant():
        if reads.place(f) is not None:
            reads.use_once(word)
        reads._first["cache", id(f), id(x)] = f, x
    hits, misses, _, _ = f.cache_info()
    text = f"keeps({reads._value(f)}, {hits}, {misses})"
    if reads.place(f) is not None and ("cache", id(f)) not in reads._first:
        reads._first["cache", id(f)] = None
        reads.found(text, True, word)


def traced_in_caches(reads: Any) -> list[tuple[Any, Any]]:
    """The cached functions that hold a traced value, each with that value."""
    return [found for key, found in reads._first.items() if key[0] == "cache" and found]


def keeps(f: Any, hits: int, misses: int) -> bool:
    """Whether a cache has dropped nothing since it had counted these hits and misses: it wasn't
    cleared, which resets the counts, and isn't full, where a miss replaces an entry."""
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
    """Check, at the end of a run, the settings that a function may set. If the run leaves one
    changed the tape is used once, since later calls wouldn't change it."""
    for library in ("numpy", "errors", "decimal"):
        word, told = _TOLD[library]
        if (word, library) in reads._first and reads._first[word, library] != told():
            reads.use_once(word)


def settings(library: str) -> Any:
    """The settings that a function of this library depends on."""
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


_known: dict[int, list[tuple[Any, str]]] = {}  # where pandas keeps its options, by their number


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
    """The settings that determine the rounding and the errors of Python's decimal numbers: those in
    force, and those of a new context."""
    decimal: Any = sys.modules["decimal"]
    found: list[Any] = []
    for c in (decimal.getcontext(), decimal.DefaultContext):
        traps = tuple(kind for kind, on in c.traps.items() if on)
        found.append((c.prec, c.rounding, c.Emin, c.Emax, c.capitals, c.clamp, traps))
    return found


_TOLD: dict[str, tuple[str, Callable[[], Any]]] = {
    "errors": ("np.seterr", np.geterr),
    "numpy": ("np.set_printoptions", np.get_printoptions),
    "pandas": ("an option of pandas", _pandas),
    "scipy": ("a setting of SciPy", _scipy),
    "decimal": ("decimal's context", decimal_context),
}


def errors_of(category: type[Warning]) -> Any:
    """The filters that decide which warnings of a category are errors, up to the first one that
    applies to all of them."""
    asked: list[Any] = []
    for action, text, kind, module, line in warnings.filters:
        if issubclass(category, kind):
            if text is None and module is None and not line:
                asked.append(action == "error")
                break
            asked.append((action == "error", text, module, line))
    return asked
