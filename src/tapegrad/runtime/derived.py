"""Derived functions: what `grad`, `value_and_grad` and `jit` return.

A call looks up a *variant*: a tape for arguments of this structure, these shapes and dtypes, whose
guards hold. If there is none, the function is traced: an ordinary NumPy run that records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.compiler import disk
from tapegrad.core import log
from tapegrad.core.callback_log import each_once
from tapegrad.core.frames import short_traceback, shorten
from tapegrad.core.late import CALLS, load
from tapegrad.core.locks import patiently
from tapegrad.core.progress import Progress
from tapegrad.core.request import Names, Request, describe
from tapegrad.errors import ArgumentError, GradientError, TraceError
from tapegrad.observe.guards.package_calls import answers, one_call
from tapegrad.observe.guards.state import State
from tapegrad.observe.observer import code_of, unobserved
from tapegrad.observe.packages.library_calls import not_followed
from tapegrad.runtime import reuse
from tapegrad.runtime.bound_methods import BoundDerived
from tapegrad.runtime.cache import Cache, CacheInfo, known_front, owner_of, shapes_of, shared_cache
from tapegrad.runtime.checks import checked_mode
from tapegrad.runtime.deriving import derived as derived_of
from tapegrad.runtime.entry import Miss
from tapegrad.runtime.retracing import (
    Cause,
    cause_of,
    furthest,
    warn_of_cause,
    warn_of_kinds,
    warn_of_retracing,
    warn_of_state,
    what_changed,
)
from tapegrad.runtime.shown import Shown, told
from tapegrad.runtime.tier import foresee
from tapegrad.runtime.transformations import Transformation
from tapegrad.runtime.variant import Variant
from tapegrad.tracing.operators.deciding import note_varied
from tapegrad.tracing.recording import trace as traces
from tapegrad.tracing.recording.trace import tracing_depth
from tapegrad.tracing.tracers.tracer import Tracer

if TYPE_CHECKING:
    from tapegrad.runtime.ahead import Lowered

MAX_TRIED = 4  # variants, of which one may have had more elements along an axis
PATIENCE = 10.0  # seconds that a thread waits for another one, which may be waiting for it


class Derived(Shown):
    """A function derived from `f` by a transformation, such as its gradient, or `f` itself
    compiled."""

    apart: tuple[str, ...] = ()  # further parts of the path that identifies its cache

    def __init__(
        self, f: Callable[..., Any], transformation: Transformation, compile: str | None = None
    ) -> None:
        kind = transformation.name
        if not callable(f):
            raise ArgumentError(f"{kind} needs a function, not {f!r}")
        self.mode = checked_mode(compile)
        transformation.check(f)
        self.f = f
        self.transformation = transformation
        self.names = Names.of(f) if transformation.numbers_names() else None
        # A derivative of a derivative belongs to the innermost function, since `grad(f)` may be a
        # new object at each call.
        owner, path = (f.owner, f.path) if isinstance(f, Derived) else owner_of(f)
        self.owner: Any = owner
        self.path: tuple[Any, ...] = (*path, transformation, self.mode, *self.apart)
        self.root: Any = f.root if isinstance(f, Derived) else f
        self.cache: Cache = shared_cache(self.owner, self.path)
        self.front = self.cache.front
        self.__wrapped__ = f
        self.__name__ = describe(f) if kind == "jit" else f"{kind}_{describe(f)}"

    @property
    def _what(self) -> str:  # type: ignore[override]
        return f"{self.transformation.told} of {describe(self.f)}"

    @property
    def _held(self) -> str:  # type: ignore[override]
        variants = self.cache.all_variants()
        compiled = sum(variant.entry is not None for variant in variants)
        held = f"{len(variants)} variant{'s' * (len(variants) != 1)}, {compiled} compiled"
        return held * bool(variants)

    def _rows(self) -> list[tuple[str, str, int]]:
        from tapegrad.runtime.ahead import rows

        return rows(self.cache.all_variants())

    def __dir__(self) -> list[str]:
        """The names for completion, without internal ones."""
        return [name for name in dir(type(self)) if name not in ("apart", "explained", "take")]

    def __reduce__(self) -> Any:
        return Derived, (self.f, self.transformation, self.mode)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind a decorated method to its instance, as functions do."""
        if instance is None:
            return self
        return BoundDerived(self, instance)

    # ---- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # While a trace runs, this function may use its tracers without being passed them.
        if traces.running:
            return self._slow(args, kwargs)
        try:
            if kwargs and self.names is not None:
                args, kwargs = self.names.by_position(args, kwargs)
            front = self.front
            recent = () if kwargs else front.recent
            for entry in recent or (front.named if kwargs else front.of_shapes(shapes_of(args))):
                try:
                    result = entry.call(self.root, args, kwargs)
                except Miss:
                    continue
                front.fast_hits += 1
                if front.last is not entry:
                    front.last = entry
                elif not recent and not kwargs:
                    front.again(entry)
                return result
            if recent and len(front.shaped) > 1:  # the shapes have changed
                front.recent = ()
                return self(*args)
            return self._slow(args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        load(CALLS)
        apart = self._apart(args, kwargs)
        if apart is not None:
            return apart[0]
        request = self._request(args, kwargs)
        if tracing_depth() or any(isinstance(x, Tracer) for x in request.leaves):
            return self._nested(request)
        if (tell := told.get()) is not None:
            tell(self, args, kwargs)
        key = request.key
        self.front.last = None
        known = self.cache.variants(key)
        with one_call(), each_once():
            found = self._answer(known, key, request)
            return self._alone(key, known, request) if found is None else found[0]

    def _apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """The result, in a 1-tuple, of a call that isn't traced: see `autograd.objects`."""
        return None

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        if kwargs and self.names is not None:
            args, kwargs = self.names.by_position(args, {**kwargs})
        args, kwargs = self.transformation.completed(self.f, args, kwargs)
        return Request(self.f, args, kwargs)

    def _answer(self, variants: Sequence[Variant], key: Any, request: Request) -> tuple[Any] | None:
        """The result of the first variant whose guards hold, in a 1-tuple; None if none do."""
        for variant in variants:
            holds = variant.state.holds(self.root, request.args, request.kwargs)
            found = variant.answer(self.root, request) if holds else None
            if found is not None:
                self.cache.used(key, variant)
                return found
            if variant.state.asks:
                answers.renew()  # another variant draws for itself
            self.cache.count("guard_failures")
            if log.wanted("guards"):
                log.say(cause_of(variant, self.root, request).event("guards", self.__name__))
        return None

    def _alone(self, key: Any, known: Sequence[Variant], request: Request) -> Any:
        """The result of a new variant, made while no other thread traces for the same owner. Until
        its call ends, a trace leaves traced values in objects, which other threads may share; and
        afterwards another thread's variant may answer."""
        with patiently(self.cache.tracing, PATIENCE) as has_waited:
            if has_waited:
                known = self.cache.variants(key)
                found = self._answer(known, key, request)
                if found is not None:
                    return found[0]
            found = self._taken_over(key, known, request)
            return self._trace(key, known, request) if found is None else found[0]

    def _taken_over(
        self, key: Any, known: Sequence[Variant], request: Request
    ) -> tuple[Any] | None:
        """The result of a variant that another function of the same code has left, in a 1-tuple.
        This function takes over the variant and its trace."""
        own = [variant.tier for variant in known]
        for left in reuse.offered_by(self.owner, self.path, request):
            if left.tier in own:
                continue
            variant = left.variant(self.root, request, self.front, self.__name__)
            if variant is None:
                continue
            found = variant.answer(self.root, request)
            if found is not None:
                self.cache.add(key, variant)
                self.cache.count("misses", "traces")
                return found
        return None

    def _trace(self, key: Any, known: Sequence[Variant], request: Request) -> Any:
        """The result of a new variant. `known` are the variants that don't answer these
        arguments."""
        if self.mode != "never" and disk.is_empty():
            foresee(self.mode)
        near = cause = None
        if known:
            known[0].state.learn(self.root, request.args, request.kwargs)
            near = furthest(known, self.root, request)
            cause = cause_of(near, self.root, request)
            note_varied(code_of(self.root), cause.place)
        start = time.perf_counter()
        with Progress(f"tracing {describe(self.f)}", " calls", quietly=unobserved):
            variant = self._derive(request)
        seconds = time.perf_counter() - start
        if variant.traced.has_tracers:  # called in a thread that a traced function started
            return self._nested(request)
        self.cache.count("traces")
        tried = list(known)
        while True:  # if another thread has traced the same meanwhile, its variant is kept
            with self.cache.lock:
                since = [v for v in self.cache.variants(key) if v not in tried]
                is_full = not since and self.cache.add(key, variant)
            if not since or variant.traced.draws is not None:  # its numbers are drawn already
                break
            found = self._answer(since, key, request)
            if found is not None:
                return found[0]
            tried += since
        self.cache.count("misses")
        self._tell(known, near, cause, variant, request, is_full, seconds)
        found = variant.answer(self.root, request, fresh=True)
        if found is not None:
            reuse.offer(self.owner, self.path, request, variant)
        if found is None:
            why = "its control flow depends on something that isn't an argument"
            if any(getattr(x, "name", None) == "transform" for x in self.path):
                why = "a condition goes the other way with what transform has changed, or " + why
            raise GradientError(
                f"{request.name} took another path when it was run again on the same "
                f"arguments: {why}"
            )
        return found[0]

    def _tell(
        self,
        known: Sequence[Variant],
        near: Variant | None,
        cause: Cause | None,
        variant: Variant,
        request: Request,
        is_full: bool,
        seconds: float,
    ) -> None:
        """Log that the function was traced, and warn about what keeps changing. `known` were the
        variants for the same kind of arguments; `near` is the one that came closest, and `cause`
        why it didn't answer."""
        last = known[0] if known else None
        before = self.cache.before(request.key) if last is None else None
        cause = cause or cause_of(None, self.root, request, before)
        cause = cause.after(variant.traced.tape)
        calls = len(variant.tape.calls)
        told = {"calls": calls, "seconds": seconds}
        self.front.note(cause.event("trace", self.__name__, f"a tape of {calls} calls", **told))
        keys = self.cache.many()
        if keys:
            warn_of_kinds(self.__name__, request.words, keys)
        if is_full:
            warn_of_retracing(self.__name__, near, self.root, request)
            return
        word = ""
        if last is not None:
            word = last.state.broken(self.root, request.args, request.kwargs)
            if word in last.state.inside:  # a package reads something that changes between calls
                not_followed(last.state.sites)
            if word and self.cache.traced_for(word):
                warn_of_state(self.__name__, word, last.state)
        if not word and self.cache.traced_for(cause.often and cause.place, cause.often):
            warn_of_cause(self.__name__, cause)

    def _derive(self, request: Request) -> Variant:
        """Trace and differentiate: the variant for this call."""
        from tapegrad.runtime.traced import observed

        transformation = self.transformation
        selection = transformation.select(request.check(transformation.name))
        inside = transformation.within(request)
        in_vain = self.cache.in_vain()
        derivation, observer = observed(
            self.root,
            inside,
            lambda traced: derived_of(transformation, selection, request, traced, self._earlier()),
            again=True,
            in_vain=in_vain,
        )
        calls = derivation.traced.tape.calls
        self.cache.note_loops(any(call.primitive.repeats for call in calls), len(calls))
        lost = observer.reads.never
        state = State(observer.reads, self.root, inside.args, inside.kwargs, observer.sites)
        if state.never and not lost:  # a package's effect can't be repeated by later calls
            not_followed(state.sites)
        if observer.waiting is not None:
            observer.waiting()
        observer.forget()
        variant = Variant(derivation, state, self.mode, self.front, self.__name__)
        variant.is_rare = bool(in_vain)
        return variant

    def _earlier(self) -> list[Any]:
        """The tapes of some earlier traces."""
        return [variant.traced.tape for variant in self.cache.all_variants()[:MAX_TRIED]]

    # ---- ahead of time

    @short_traceback
    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The tape, plan and source of this function for arguments of these shapes and dtypes,
        without a call: an object with `tape`, `plan`, `source` and `compile()`.

        Parameters
        ----------
        args, kwargs : the arguments of a call. A `ShapeDtype`, or any object with a `shape` and a
            `dtype`, may stand for an array. Numbers and arrays are used as they are.

        Raises
        ------
        ConversionError : the function depends on values of an array for which a shape was passed;
            the message names the line. Pass an array for it.
        """
        load(CALLS)
        from tapegrad.runtime.ahead import Lowered, looked_at, with_stand_ins
        from tapegrad.tracing.recording.decisions import only

        self._check_outside("lowered or compiled", "; eval_shape says which shapes there are")
        (args, kwargs), given = with_stand_ins((args, kwargs))
        request = self._request(args, kwargs)
        transformation = self.transformation
        with patiently(self.cache.tracing, PATIENCE), only(given):
            selection = transformation.select(request.check(transformation.name))
            derivation, state = looked_at(
                self.root,
                transformation.within(request),
                lambda traced: derived_of(
                    transformation, selection, request, traced, self._earlier()
                ),
                without=given is not None,
            )
        derivation.computed = None  # there is no result
        variant = Variant(derivation, state, self.mode, self.front, self.__name__)
        return Lowered(self, request, variant)

    @short_traceback
    def compile(self, *args: Any, **kwargs: Any) -> Derived:
        """Wait for the machine code for arguments of these shapes and dtypes, and return this
        function: calls with such arguments use it from the start. The arguments are those of
        `lower`. Nothing is called, so nothing is drawn or left in objects.

        With `compile="never"` the function is traced only.
        """
        self.lower(*args, **kwargs).compile()
        return self

    def take(self, request: Request, variant: Variant) -> None:
        """Keep a variant for calls like this one, unless there is an equal one, and wait for its
        machine code."""
        if variant.state.never:
            raise TraceError(
                f"{self.__name__} can't be compiled ahead: it is traced at each call. "
                f"{what_changed(variant.state.never, variant.state)}"
            )
        key, args, kwargs = request.key, request.args, request.kwargs
        holding = [v for v in self.cache.variants(key) if v.state.holds(self.root, args, kwargs)]
        known = next((v for v in holding if v.is_like(variant)), None)
        if known is None:
            self.cache.add(key, variant)
        if known is None:
            self.cache.count("traces")
            reuse.offer(self.owner, self.path, request, variant)
        (known or variant).wait(request)

    # ---- inside another trace

    @unobserved
    def _nested(self, request: Request) -> Any:
        """Record this function's tape in the running trace."""
        found = self.transformation.inside(request)
        self.cache.count("traces")
        return found

    # ---- the cache

    def cache_info(self) -> CacheInfo:
        """Counts of hits, misses, traces and compilations; see `CacheInfo`."""
        return self.cache.info()

    def clear_cache(self) -> None:
        """Forget all tapes and compiled code, and set the counts to zero."""
        self.cache.clear()
        reuse.forget(self.owner, self.path)


def called(f: Any, transformation: Transformation, compile: str | None, *args: Any) -> Any:
    """The result of `Derived(f, transformation, compile)(*args)`. If its entries are known, no
    `Derived` is made: that takes longer than a small call."""
    mode = checked_mode(compile)
    front = None if traces.running else known_front(f, (transformation, mode))
    if front is not None:
        for entry in front.recent or front.of_shapes(shapes_of(args)):
            try:
                result = entry.call(f, args, {})
            except Miss:
                continue
            front.fast_hits += 1
            front.last = entry
            return result
    return Derived(f, transformation, mode)(*args)


def derived(f: Any, transformation: Transformation, compile: str | None) -> Any:
    """The function derived from `f`, or a decorator if `f` is None."""
    compile = checked_mode(compile)
    if f is None:
        return lambda g: Derived(g, transformation, compile)
    return Derived(f, transformation, compile)
