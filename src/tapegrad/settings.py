"""What is kept, and by how many threads code runs: caches and the pool."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.backends.host import HOST
from tapegrad.errors import ArgumentError
from tapegrad.runtime import reuse
from tapegrad.runtime.bound_methods import BoundDerived
from tapegrad.runtime.cache import Cache, CacheInfo, caches_of, owner_of
from tapegrad.runtime.checks import set_default_mode
from tapegrad.runtime.derived import Derived
from tapegrad.typing import Compile


def cache_info(f: Any = None) -> CacheInfo:
    """Counts of hits, misses, traces and compiles.

    Parameters
    ----------
    f : a derived function, or a function, for whatever was derived from it; None is for all.

    Returns
    -------
    A named tuple: hits, misses, traces, compiles, guard failures, variants that are held, loads
    from disk, and variants that are being compiled now.
    """
    infos = [cache.info() for cache in _caches(f)]
    nothing = CacheInfo(*[0] * len(CacheInfo._fields))
    return CacheInfo(*[sum(column) for column in zip(nothing, *infos, strict=True)])


def clear_cache(f: Any = None) -> None:
    """Forget tapes and compiled code, and set the counts to zero. What is on disk stays there.

    Parameters
    ----------
    f : a derived function, or a function, for whatever was derived from it; None is for all.
    """
    for cache in _caches(f):
        cache.clear()
    if f is not None:
        reuse.forget(*(f.owner, f.path) if isinstance(f, Derived | BoundDerived) else owner_of(f))
    if f is None:
        reuse.forget()
        from tapegrad.compiler.client import client

        client.clear()


def set_compile(compile: Compile = None) -> None:
    """Set what `compile=` is where a function is derived without it.

        set_compile("never")   # play all tapes, as for debugging

    It holds for functions that are derived from now on: `grad(f)`, `jit(f)` and the others. When a
    process starts it is what TAPEGRAD_COMPILE says, or else "auto".

    Parameters
    ----------
    compile : "auto", "always" or "never", as in `grad`; None is what it was when the process
        started.

    Raises
    ------
    ArgumentError : it is none of these.
    """
    set_default_mode(compile)


def set_num_threads(n: int | None = None) -> None:
    """Let compiled code work in `n` threads, the calling one among them.

    Long loops are cut into chunks, which the threads share. How many chunks there are follows from
    the shapes alone, so results are the same, to the last bit, with any number of threads. When a
    process starts the number is TAPEGRAD_NUM_THREADS, or else that of the cores it may use.
    Linear systems run in LAPACK, which has threads and settings of its own.

    Parameters
    ----------
    n : how many, from 1 to 4096; None is one for each core that the process may use.

    Raises
    ------
    ArgumentError : `n` isn't such a number.
    """
    whole, most = isinstance(n, (int, np.integer)) and not isinstance(n, bool), HOST.most_threads
    if n is not None and not (whole and 1 <= n <= most):
        raise ArgumentError(
            f"set_num_threads takes a positive number of threads, up to {most}, not {n!r}"
        )
    HOST.work_in(None if n is None else int(n))


def _caches(f: Any) -> list[Cache]:
    if isinstance(f, (Derived, BoundDerived)):
        return [f.cache]
    return caches_of() if f is None else caches_of(*owner_of(f))
