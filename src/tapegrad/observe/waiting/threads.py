"""Threads started by a run: their functions run one after the other, in the run's own thread.

    future = pool.submit(f, x)    thread.start()
    ...                           ...
    future.result()               thread.join()      here f(x) and thread.run() run

They are postponed until the run waits: for a result, a lock or an event, or the end of a thread.
Python doesn't define which of several threads runs next, so a program must work with this order,
too. Each thread has its own context and values of `threading.local`. The trace is repeated with
real threads, which aren't observed, and its tape is used once, if a function waits for something
that no postponed function does, if nobody waits for a function, or if one queries its own thread.
"""

from __future__ import annotations

import contextvars
import functools
import queue
import threading
import time
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from tapegrad.core.named import own_attribute
from tapegrad.errors import UnsupportedError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.code_facts import THREADS, places
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.guards.queried import OF_THREADS
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.packages.opaque import FOLLOWED
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import operand_at
from tapegrad.observe.sides.effects import Stopped

MOST_SLEEPS = 100  # of one function; one that keeps sleeping may wait for another thread
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())


class Worker:
    """The state of one thread: its context, and values of `threading.local`. These are exchanged
    with those of the run's thread while the worker runs."""

    def __init__(self, holder: Any) -> None:
        self.holder = holder  # the thread or pool
        self.context = contextvars.Context()
        self.locals: dict[int, tuple[threading.local, dict[str, Any]]] = {}
        self.owned: set[int] = set()  # reentrant locks that it has taken
        self.sleeps = 0

    def does(self, f: Callable[[], Any]) -> None:
        self.sleeps = 0
        self._change()
        try:
            self.context.run(f)
        finally:
            self._change()

    def comes_to(self, x: threading.local) -> None:
        """Record a use of `x`, for which the thread begins without values."""
        if id(x) not in self.locals:
            self.locals[id(x)] = x, {}
            _exchange(*self.locals[id(x)])

    def _change(self) -> None:
        for x, values in self.locals.values():
            _exchange(x, values)


def _exchange(x: threading.local, values: dict[str, Any]) -> None:
    before = {**vars(x)}
    vars(x).clear()
    vars(x).update(values)
    values.clear()
    values.update(before)


# ---- instructions


def call(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any], at: int) -> Any:
    """The recorder of a call, the operand number `at`, if it creates, starts or awaits threads;
    else `FOLLOWED`."""
    o = a.o
    if (o.workers or o.pending) and _may_wait(a, f, args, kwargs):
        frames.replace(operand_at(a.stack, at), functools.partial(_waiting, o, f, args))
        return None
    function: Any = f.__func__ if type(f) is types.MethodType else f
    if isinstance(f, type):
        function = f.__init__  # type: ignore[misc]
    if type(function) is not types.FunctionType or function.__name__ not in _NAMES:
        return FOLLOWED
    answer = _ANSWERS.get(f"{function.__module__}.{function.__qualname__}")
    if answer is None or o.trace is None:
        return FOLLOWED
    held = f.__self__ if type(f) is types.MethodType else args[0] if args else None
    if not (isinstance(f, type) or _is_answered(o, answer, held, args)):
        return FOLLOWED
    if _failures(o):
        o.reads.use_once(name_of(f), OF_THREADS)
        return FOLLOWED
    if o.effects is not None:
        if o.apart is not None:
            raise Stopped
        o.effects.changed()
    if answer in (_unfollowed, _followed):
        frames.replace(operand_at(a.stack, at), functools.partial(answer, o, f))
        return None
    by = functools.partial(answer, o)
    by = functools.partial(by, held) if type(f) is types.MethodType else by
    frames.replace(operand_at(a.stack, at), by)
    return None


def enter_with(a: Activation, x: Any) -> Any:
    """Prepare `with x`, where `x` may be a lock."""
    if not ((a.o.workers or a.o.pending) and _is_held(a.o, x)):
        return FOLLOWED
    frames.replace(operand_at(a.stack, 0), _Lock(a.o, x))
    return None


class _Lock:
    """The replacement of a lock that another thread has to release."""

    def __init__(self, o: RunRecord, lock: Any) -> None:
        self._o, self._lock = o, lock

    def __enter__(self) -> Any:
        return _waiting(self._o, self._lock.acquire, ())

    def __exit__(self, *error: object) -> None:
        self._lock.release()


# ---- which calls


def _is_answered(o: RunRecord, answer: Any, held: Any, args: Sequence[Any]) -> bool:
    """Whether a method of a thread, a pool, or one of their results is answered."""
    place = o.reads.place(held)
    if answer is _followed:
        return place is None and bool(o.pending)
    if isinstance(held, threading.Thread):
        starts = answer in (_start, _unfollowed) and id(held) not in o.ran
        return place is None and (starts or id(held) in o.ran)
    kinds = {kind.__name__ for kind in type(held).__mro__}
    if kinds.isdisjoint(("ThreadPool", "ThreadPoolExecutor")) or "InterpreterPoolExecutor" in kinds:
        return False  # of processes, or of interpreters
    if answer is _imap and not any(hasattr(x, "__len__") for x in args[-2:]):
        return False  # without a known length
    if place is not None:
        for name in ("_shutdown", "_broken", "_state"):
            if name in vars(held):
                o.lookups.attribute(held, name)
    return place is None or _initializer(held) is None  # else that has run in its threads


def _initializer(holder: Any) -> tuple[Any, Any] | None:
    """The function that each thread of a pool calls first, and its arguments, if there is one."""
    if hasattr(holder, "_create_worker_context"):  # from Python 3.14 on
        context = holder._create_worker_context()
        found = context.initializer, context.initargs
    else:
        found = getattr(holder, "_initializer", None), getattr(holder, "_initargs", ())
    return None if found[0] is None else found


def _may_wait(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call waits for other threads, or queries its own thread."""
    if f is time.sleep:
        return True
    if f is threading.current_thread or f is threading.get_ident:
        return a.users and bool(a.o.workers)
    if not isinstance(f, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        return False
    bound = [f.__self__] if isinstance(f, types.BuiltinFunctionType) else []
    held, *given = [*bound, *args] or [None]
    if isinstance(held, queue.SimpleQueue):
        return f.__name__ != "put"
    is_patient = kwargs.get("blocking", given[0] if given else True)
    return f.__name__ in ("acquire", "__enter__") and is_patient and _is_held(a.o, held)


def _is_held(o: RunRecord, x: Any) -> bool:
    """Whether `x` is a lock that another thread has to release."""
    if type(x) is _LOCK:
        return bool(x.locked())
    if type(x) is not _RLOCK or not o.workers:
        return False
    owned, lock = o.workers[-1].owned, cast(Any, x)
    if lock._is_owned() and id(x) not in owned:  # taken outside of the worker
        return True
    owned.add(id(x))
    return False


def _waiting(o: RunRecord, f: Any, given: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """Call `f(*args, **kwargs)`, which may wait for other threads. These run first."""
    _go_on(o)
    worker = o.workers[-1] if o.workers else None
    if worker is not None:
        if f is threading.current_thread and isinstance(worker.holder, threading.Thread):
            return worker.holder
        held = own_attribute(f, "__self__", given[0] if given else None)
        worker.sleeps += f is time.sleep
        is_empty = isinstance(held, queue.SimpleQueue) and f.__name__ == "get" and held.empty()
        asks = f is threading.current_thread or f is threading.get_ident
        if is_empty or asks or worker.sleeps > MOST_SLEEPS or _is_held(o, held):
            _give_up(o)
    return f(*args, **kwargs)


def _give_up(o: RunRecord) -> None:
    """Discard the trace; the next one has real threads."""
    o.back = [(_failures(o), 0)]
    error = UnsupportedError(f"a function of a thread's that waits for others. {OF_THREADS}")
    o.refuse(error)
    raise error


def _failures(o: RunRecord) -> set[int]:
    """The notes about threads of the traced function."""
    return places(o.code, THREADS)


def check_done(o: RunRecord) -> None:
    """Check, at the end of a run, that no thread is left for which nobody has waited."""
    if o.pending:
        _give_up(o)


# ---- replacements


def _go_on(o: RunRecord) -> None:
    """Run the postponed functions."""
    while o.pending:
        o.pending.pop(0)()
        if o.refused is not None:
            raise o.refused


def _run(o: RunRecord, holder: Any, future: Any, f: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Run a function of a thread or pool, followed; `future` gets its result."""
    known = o.threads.get(id(holder))
    if known is None or known[1] in o.workers:  # it is suspended
        known = holder, Worker(holder)
        begins = None if id(holder) in o.threads else _initializer(holder)
        o.threads[id(holder)] = known
        if begins is not None:
            _outcome(o, holder, *begins)
    o.workers.append(known[1])
    try:
        known[1].does(_work(o, future, f, args, kwargs))
    finally:
        o.workers.pop()


def _work(
    o: RunRecord, future: Any, f: Any, args: Any, kwargs: dict[str, Any]
) -> Callable[[], None]:
    """What a thread of a pool does to give a future its result."""
    from concurrent.futures import thread

    item: Any = thread._WorkItem
    o.roots.add(item.run.__code__)
    if not hasattr(thread, "WorkerContext"):
        run: Callable[[], None] = item(future, f, args, kwargs).run
        return run
    context: Any = thread.WorkerContext
    context = context(None, ())  # from Python 3.14 on
    o.roots.add(thread.WorkerContext.run.__code__)
    return functools.partial(item(future, (f, args, kwargs)).run, context)


def _outcome(o: RunRecord, pool: Any, f: Any, args: Any, kwargs: Any = None) -> tuple[bool, Any]:
    """Whether a function has returned, and its result or its error."""
    from concurrent.futures import Future

    future: Any = Future()
    _run(o, pool, future, f, args, kwargs or {})
    error = future.exception()
    return error is None, future.result() if error is None else error


def _unfollowed(o: RunRecord, f: Any, *args: Any, **kwargs: Any) -> Any:
    """Create or end threads that have no work."""
    _go_on(o)
    return f(*args, **kwargs)


def _followed(o: RunRecord, f: Any, *args: Any, **kwargs: Any) -> Any:
    """Query whether work is done."""
    _go_on(o)
    o.roots.add(own_attribute(f, "__func__", f).__code__)
    return f(*args, **kwargs)


def _submit(o: RunRecord, pool: Any, f: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The replacement of `pool.submit(f, *args, **kwargs)`."""
    from concurrent.futures import Future

    if pool._shutdown or pool._broken:
        return type(pool).submit(pool, f, *args, **kwargs)  # raises the error
    future: Any = Future()
    o.pending.append(lambda: _run(o, pool, future, f, args, kwargs))
    return future


def _apply(
    o: RunRecord,
    pool: Any,
    f: Any,
    args: Any = (),
    kwds: Any = None,
    callback: Any = None,
    error_callback: Any = None,
) -> Any:
    """The replacement of `pool.apply_async`."""
    from multiprocessing.pool import ApplyResult

    pool._check_running()
    result: Any = ApplyResult(pool, None, None)

    def apply() -> None:
        result._set(0, _outcome(o, pool, f, args, kwds))
        _call_back(o, pool, result, callback, error_callback)

    o.pending.append(apply)
    return result


def _map(
    o: RunRecord,
    pool: Any,
    f: Any,
    iterable: Iterable[Any],
    mapper: Any,
    chunksize: int | None = None,
    callback: Any = None,
    error_callback: Any = None,
) -> Any:
    """The replacement of `pool.map`, `pool.starmap` and the like, item by item."""
    from multiprocessing.pool import MapResult

    pool._check_running()
    items, stars = [*iterable], mapper.__name__ == "starmapstar"
    kind: Any = MapResult
    result = kind(pool, bool(items), len(items), None, None)

    def apply() -> None:
        for k, x in enumerate(items):
            done, value = _outcome(o, pool, f, x if stars else (x,))
            result._set(k, (done, [value] if done else value))
        _call_back(o, pool, result, callback, error_callback)

    o.pending.append(apply)
    return result


def _call_back(o: RunRecord, pool: Any, result: Any, callback: Any, error_callback: Any) -> None:
    called = callback if result._success else error_callback
    if called is not None:
        _outcome(o, pool, called, (result._value,))


def _imap(o: RunRecord, pool: Any, f: Any, iterable: Any, chunksize: int = 1) -> Any:
    """The replacement of `pool.imap`."""
    from multiprocessing.pool import IMapIterator

    pool._check_running()
    result: Any = IMapIterator(pool)
    result._set_length(len(iterable))

    def apply() -> None:
        for k, x in enumerate(iterable):
            result._set(k, _outcome(o, pool, f, (x,)))

    o.pending.append(apply)
    return result


def _start(o: RunRecord, thread: Any) -> None:
    """The replacement of `thread.start()`."""
    o.ran[id(thread)] = thread
    thread._started.set()

    def run() -> None:
        done, error = _outcome(o, thread, thread.run, ())
        if not done and o.refused is None:
            raised = (type(error), error, error.__traceback__, thread)
            threading.excepthook(threading.ExceptHookArgs(raised))
        if hasattr(thread, "_handle"):  # from Python 3.13 on
            thread._handle._set_done()
        else:
            thread._is_stopped = True

    o.pending.append(run)


def _join(o: RunRecord, thread: Any, timeout: float | None = None) -> None:
    """The replacement of `thread.join()`."""
    if _is_alive(o, thread):
        _give_up(o)


def _is_alive(o: RunRecord, thread: Any) -> bool:
    """The replacement of `thread.is_alive()`: whether the thread is suspended below the caller."""
    _go_on(o)
    known = o.threads.get(id(thread))
    return known is not None and known[1] in o.workers


# The replacements of methods, by their names.
_OF_FUTURES = "concurrent.futures.thread.ThreadPoolExecutor."
_OF_POOLS = "multiprocessing.pool.Pool."
_ANSWERS: dict[str, Any] = {
    "threading.Thread.__init__": _unfollowed,
    "threading.Thread.start": _start,
    "threading.Thread.join": _join,
    "threading.Thread.is_alive": _is_alive,
    "threading.Event.is_set": _followed,
    f"{_OF_FUTURES}__init__": _unfollowed,
    f"{_OF_FUTURES}submit": _submit,
    f"{_OF_FUTURES}shutdown": _unfollowed,
    "concurrent.futures._base._AcquireFutures.__init__": _unfollowed,  # recognised by its place
    "concurrent.futures._base.Future.done": _followed,
    "concurrent.futures._base.Future.running": _followed,
    "multiprocessing.pool.ThreadPool.__init__": _unfollowed,
    f"{_OF_POOLS}apply_async": _apply,
    f"{_OF_POOLS}_map_async": _map,
    f"{_OF_POOLS}imap": _imap,
    f"{_OF_POOLS}imap_unordered": _imap,
    **dict.fromkeys([_OF_POOLS + name for name in ("close", "terminate", "join")], _unfollowed),
    "multiprocessing.pool.ApplyResult.ready": _followed,
}
_NAMES = {name.rpartition(".")[2] for name in _ANSWERS}
