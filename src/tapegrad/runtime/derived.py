"""Derived functions: what `grad`, `value_and_grad`, `jit` and `vjp` return, and their cache.

A call looks up a *variant*: a tape for arguments of this structure, these shapes and dtypes, whose
guards hold. If there is none, the function is traced, which is an ordinary NumPy run that records.
A variant is played with NumPy until its machine code is there; see `tier`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad import log
from tapegrad.compiler import disk
from tapegrad.errors import ArgumentError, GradientError
from tapegrad.handlers import let_through
from tapegrad.ir.tape import Literal, Tape
from tapegrad.late import CALLS, load
from tapegrad.locks import cached_property
from tapegrad.runtime.cache import Cache, CacheInfo, owner_of, shared_cache
from tapegrad.runtime.checks import check_scalar_result
from tapegrad.runtime.entry import Entry, Miss
from tapegrad.runtime.play import run
from tapegrad.runtime.retracing import (
    warn_of_kinds,
    warn_of_retracing,
    warn_of_state,
    why_traced,
)
from tapegrad.runtime.tier import Tier, foresee
from tapegrad.signature import (
    check_differentiable,
    check_leaf,
    describe,
    key_orders,
    leaf_key,
    leaf_names,
)
from tapegrad.tracing import trace as traces
from tapegrad.tracing.aliasing import check_apart
from tapegrad.tracing.observe.observer import Observer, unobserved
from tapegrad.tracing.run import (
    Traced,
    own_result,
    plain_value,
    replay,
    trace_function,
)
from tapegrad.tracing.state import State
from tapegrad.tracing.trace import tracing_depth
from tapegrad.tracing.tracer import Tracer
from tapegrad.trees import flatten, is_traced, unflatten

PASSES = 5e-4  # seconds for each call of a tape, about what optimising takes


@dataclass(frozen=True)
class Recipe:
    """What is derived: the kind ("grad", "value_and_grad" or "jit") and its options."""

    kind: str
    argnums: int | tuple[int, ...] = 0
    has_aux: bool = False

    @property
    def positions(self) -> tuple[int, ...]:
        return self.argnums if isinstance(self.argnums, tuple) else (self.argnums,)


@dataclass(eq=False)
class Variant:
    """One compiled or to-be-compiled tape of a derived function."""

    tape: Tape
    traced: Traced
    recipe: Recipe
    gradient_structures: list[Any]
    gradient_counts: list[int]
    kept: list[int]
    state: State | None = None  # what the function found outside; a variant holds while it does
    tier: Tier = field(init=False)
    entry: Entry | None = None

    def __post_init__(self) -> None:
        # What the trace depends on in the arrays from outside, besides what they hold. A tape that
        # reaches an outer trace's values is part of that trace, and isn't kept.
        hidden = () if self.traced.has_tracers else self.traced.hidden
        self.outside = [leaf_key(x) for x in hidden]

    @cached_property
    def finished(self) -> Tape:
        """The tape as it is compiled."""
        from tapegrad.pipeline import finished

        return finished(self.tape)

    def note(self, seconds: float) -> None:
        """A call was played, and took so long. A tape that nobody compiles is optimised once it was
        played for longer than that takes."""
        self.tier.note(seconds)
        if self.tier.mode == "never" and self.tier.played > PASSES * len(self.tape.calls):
            self.tape = self.finished

    def fits_outside(self) -> bool:
        """Whether the arrays from outside have the shapes, dtypes and layouts that they were traced
        with: all can be changed in place."""
        return [leaf_key(x) for x in self.traced.hidden] == self.outside

    def assemble(self, values: Sequence[Any]) -> Any:
        """The result in the user's terms, of the values of the tape's outputs."""
        kept = len(self.kept)
        all_values: list[Any] = [None] * (len(self.traced.tape.outputs))
        for at, value in zip(self.kept, values[:kept], strict=True):
            all_values[at] = value
        if self.recipe.kind == "jit":
            return self.traced.rebuild(all_values)
        gradients = []
        start = kept
        for structure, count in zip(self.gradient_structures, self.gradient_counts, strict=True):
            gradients.append(unflatten(structure, values[start : start + count]))
            start += count
        result = tuple(gradients) if isinstance(self.recipe.argnums, tuple) else gradients[0]
        if not self.recipe.has_aux:
            if self.recipe.kind == "grad":
                return result
            return self._first(all_values), result
        out = [
            self.traced.leaf(k) if at is None or at not in self.kept else all_values[at]
            for k, at in enumerate(self.traced.outputs)
        ]
        value, aux = unflatten(self.traced.structure, out)
        return (result, aux) if self.recipe.kind == "grad" else ((value, aux), result)

    def _first(self, values: list[Any]) -> Any:
        at = self.traced.outputs[0]
        return self.traced.leaf(0) if at is None else values[at]


def own(tape: Tape, values: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Results that nobody else holds: played values may be views, or the arguments themselves."""
    done: list[Any] = []
    seen: set[int] = set()
    for value in values:
        if isinstance(value, np.ndarray) and value.ndim:
            fresh = value.base is None and value.flags.owndata and value.flags.c_contiguous
            given = id(value) in seen or any(value is x for x in inputs)
            if not fresh or given:
                value = np.array(value, order="C")
            seen.add(id(value))
        elif isinstance(value, np.ndarray):
            value = value[()]
        done.append(value)
    return done


class Derived:
    """A function derived from `f`: its gradient, its value and gradient, or itself compiled."""

    def __init__(self, f: Callable[..., Any], recipe: Recipe, compile: str) -> None:
        if not callable(f):
            raise ArgumentError(f"{recipe.kind} needs a function, not {f!r}")
        if compile not in ("auto", "always", "never"):
            raise ArgumentError(f'compile is "auto", "always" or "never", not {compile!r}')
        self.f = f
        self.recipe = recipe
        self.compile = compile
        # A derivative of a derivative belongs to the function at the bottom: `grad(f)` may be
        # made anew at each call.
        owner, path = (f.owner, f.path) if isinstance(f, Derived) else owner_of(f)
        self.owner: Any = owner
        self.path: tuple[Any, ...] = (*path, recipe, compile)
        self.root: Any = f.root if isinstance(f, Derived) else f
        self.cache: Cache = shared_cache(self.owner, self.path)
        self.__wrapped__ = f
        self.__name__ = describe(f) if recipe.kind == "jit" else f"{recipe.kind}_{describe(f)}"
        self.__doc__ = f.__doc__

    def __repr__(self) -> str:
        return f"<tapegrad {self.recipe.kind} of {describe(self.f)}>"

    def __reduce__(self) -> Any:
        return Derived, (self.f, self.recipe, self.compile)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a decorated method: bound to the instance, as functions are."""
        if instance is None:
            return self
        return BoundDerived(self, instance)

    # ---- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # While a trace runs, this function may reach its tracers without being passed them.
        if not kwargs and not traces.running:
            for entry in self.cache.recent:
                try:
                    result = entry.call(self.root, args)
                except Miss:
                    continue
                self.cache.fast_hits += 1
                return result
        return self._slow(args, kwargs)

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        load(CALLS)
        leaves, structure = flatten((args, kwargs))
        if tracing_depth() or any(isinstance(x, Tracer) for x in leaves):
            return self._nested(args, kwargs)
        traced_leaves = [x for x in leaves if is_traced(x)]
        key = (structure, key_orders((args, kwargs)), tuple(leaf_key(x) for x in leaves))
        known = self.cache.variants(key)
        found = self._answer(known, key, traced_leaves, args, kwargs)
        return self._trace(key, known, leaves, args, kwargs) if found is None else found[0]

    def _answer(
        self, variants: Sequence[Variant], key: Any, leaves: Sequence[Any], args: Any, kwargs: Any
    ) -> tuple[Any] | None:
        """The result of the first variant whose guards hold, in a 1-tuple; None if none do."""
        for variant in variants:
            holds = variant.state is None or variant.state.holds(self.root, args, kwargs)
            found = self._run(variant, leaves, args, kwargs) if holds else None
            if found is not None:
                self.cache.used(key, variant)
                return found
            self.cache.count("guard_failures")
            if log.wanted("guards"):
                why = why_traced(variant, self.root, leaves, args, kwargs)
                log.say("guards", f"{self.__name__}: {why}")
        return None

    def _run(
        self,
        variant: Variant,
        leaves: Sequence[Any],
        args: Any,
        kwargs: Any,
        fresh: bool = False,
    ) -> tuple[Any] | None:
        """The result in a 1-tuple, or None if one of the variant's guards doesn't hold; a `fresh`
        one was just traced with these arguments."""
        traced = variant.traced
        if traced.written:
            names = traced.tape.names[: len(leaves)]
            check_apart(describe(self.f), traced.written, names, [*leaves, *traced.hidden])
        used_again = variant.state is None or not variant.state.never
        if variant.entry is None and used_again:
            self._compiled(variant, args, kwargs)
        if variant.entry is not None:
            try:
                return (variant.entry.call_flat(leaves),)
            except Miss:
                if not fresh:
                    return None
                # The last bits of a number, which machine code may round otherwise, have decided.
        start = time.perf_counter()
        if not variant.fits_outside():
            return None
        inputs = [*map(plain_value, leaves), *variant.traced.hidden]
        try:
            values, broken = run(variant.tape, inputs)
        except (IndexError, ValueError):
            if fresh:
                raise
            return None  # a new trace tells the user where, or takes the path without it
        if broken is not None:
            return None
        values = own(variant.tape, values, inputs)
        if used_again:
            variant.note(time.perf_counter() - start)
        return (variant.assemble(values),)

    def _trace(
        self, key: Any, known: Sequence[Variant], leaves: list[Any], args: Any, kwargs: Any
    ) -> Any:
        """The result of a new variant; `known` are those that don't answer these arguments."""
        if disk.is_empty():
            foresee(self.compile)
        variant = self._derive(args, kwargs)
        if variant.traced.has_tracers:  # called in a thread of a traced function's own
            return self._nested(args, kwargs)
        self.cache.count("traces")
        traced_leaves = [x for x in leaves if is_traced(x)]
        tried = list(known)
        while True:  # another thread may have traced the same meanwhile; then its variant is kept
            with self.cache.lock:
                since = [v for v in self.cache.variants(key) if v not in tried]
                is_full = not since and self.cache.add(key, variant)
            if not since:
                break
            found = self._answer(since, key, traced_leaves, args, kwargs)
            if found is not None:
                return found[0]
            tried += since
        self.cache.count("misses")
        last = known[0] if known else None
        if log.wanted("trace"):
            why = why_traced(last, self.root, traced_leaves, args, kwargs)
            log.say("trace", f"{self.__name__}, {len(variant.tape.calls)} calls: {why}")
        keys = self.cache.many()
        if keys:
            warn_of_kinds(self.__name__, leaf_names(self.f, args, kwargs)[1], keys)
        if is_full:
            warn_of_retracing(self.__name__, last, self.root, traced_leaves, args, kwargs)
        elif last is not None and last.state is not None:
            word = last.state.broken(self.root, args, kwargs)
            if self.cache.traced_for(word):
                warn_of_state(self.__name__, word, bool(last.state.never))
        found = self._run(variant, traced_leaves, args, kwargs, fresh=True)
        if found is None:
            raise GradientError(
                f"{describe(self.f)} took another path when it was run again on the same "
                "arguments: its control flow depends on something that isn't an argument"
            )
        return found[0]

    def _derive(self, args: Any, kwargs: Any, final: bool = True) -> Variant:
        """Trace, check, differentiate and optimise; a tape that isn't `final` becomes part of
        another one, in whose trace this is called."""
        names, words = leaf_names(self.f, args, kwargs)
        leaves, _ = flatten((args, kwargs))
        for leaf, word in zip(leaves, words, strict=True):
            check_leaf(leaf, f"{self.recipe.kind} of {describe(self.f)}: {word}")
        wrt, structures, counts = self._with_respect_to(args, words)
        if not final:
            return self._differentiated(args, kwargs, names, wrt, structures, counts, None)
        with Observer(self.root, args, kwargs, describe(self.f)) as observer:
            variant = self._differentiated(args, kwargs, names, wrt, structures, counts, observer)
        observer.check()
        variant.state = State(observer.reads, self.root, args, kwargs)
        observer.forget()
        variant.tier = Tier(variant.tape, self.compile, self.cache, self.__name__)
        return variant

    def _differentiated(
        self,
        args: Any,
        kwargs: Any,
        names: Sequence[str],
        wrt: list[int],
        structures: list[Any],
        counts: list[int],
        observer: Observer | None,
    ) -> Variant:
        from tapegrad.optimize.dce import prune
        from tapegrad.pipeline import derivative, gradient, settled

        final = observer is not None
        traced = trace_function(self.f, args, kwargs, names, observer)
        if self.recipe.kind == "jit":
            kept = list(range(len(traced.tape.outputs)))
            tape = prune(settled(traced.tape)) if final else traced.tape
            return Variant(tape, traced.without_values(), self.recipe, [], [], kept)
        check_scalar_result(traced, describe(self.f), self.recipe.has_aux)
        kept = self._kept(traced)
        if traced.outputs[0] is None:  # a constant loss: no input matters
            tape = _constant(traced.tape, wrt)
        else:
            if final:
                tape = prune(settled(derivative(traced.tape, wrt, keep=kept)))
            else:
                tape = gradient(traced.tape, wrt, keep=kept, final=False)
            # Arrays that users' derivative rules reached are hidden inputs like the function's own.
            traced = replace(traced, hidden=(*traced.hidden, *tape.captured))
            tape = replace(tape, captured=())
        traced = traced.without_values()
        return Variant(tape, traced, self.recipe, structures, counts, kept)

    def _with_respect_to(
        self, args: Sequence[Any], words: Sequence[str]
    ) -> tuple[list[int], list[Any], list[int]]:
        """Numbers of the tape's inputs to differentiate, and the structures of the gradients."""
        wrt: list[int] = []
        structures, counts = [], []
        if self.recipe.kind == "jit":
            return [], [], []
        positions = [_position(p, len(args), self) for p in self.recipe.positions]
        starts, word, number = {}, 0, 0
        for k, arg in enumerate(args):
            leaves, structure = flatten(arg)
            starts[k] = (number, word, leaves, structure)
            word += len(leaves)
            number += sum(is_traced(x) for x in leaves)
        for p in positions:
            number, word, leaves, structure = starts[p]
            for offset, leaf in enumerate(leaves):
                check_differentiable(self.f, leaf, words[word + offset])
            wrt += range(number, number + len(leaves))
            structures.append(structure)
            counts.append(len(leaves))
        return wrt, structures, counts

    def _kept(self, traced: Traced) -> list[int]:
        """The numbers of the outputs whose values are wanted besides the gradients."""
        wanted = [at for at in traced.outputs if at is not None]
        if self.recipe.kind == "grad":
            first = traced.outputs[0]
            wanted = [at for at in wanted if at != first] if self.recipe.has_aux else []
        return sorted(set(wanted))

    def _compiled(self, variant: Variant, args: Any, kwargs: Any) -> None:
        """Enter a variant's machine code, if it is there."""
        while variant.entry is None and (executable := variant.tier.executable()) is not None:
            try:
                entry = Entry(variant, executable, args, kwargs)
            except Exception as error:
                let_through(error)
                variant.tier.refuse(str(error))
            else:
                self._enter(variant, entry)

    def _enter(self, variant: Variant, entry: Entry) -> None:
        with self.cache.lock:
            if variant.entry is not None:  # another thread was faster
                return
            variant.entry = entry
            variant.tier.settle()
            if entry.fast and not variant.traced.written:  # `_run` looks whether arguments overlap
                self.cache.recent = (entry, *self.cache.recent)[:4]

    # ---- inside another trace

    @unobserved
    def _nested(self, args: Any, kwargs: Any) -> Any:
        """Record this function's tape in the trace of its arguments, or of what it reaches."""
        variant = self._derive(args, kwargs, final=False)
        self.cache.count("traces")
        leaves, _ = flatten((args, kwargs))
        inputs = [x for x in leaves if is_traced(x)]
        inputs = [x if isinstance(x, Tracer) else plain_value(x) for x in inputs]
        inputs += variant.traced.hidden
        return variant.assemble([own_result(x) for x in replay(variant.tape, inputs)])

    # ---- the cache

    def cache_info(self) -> CacheInfo:
        """How often this function hit, missed, traced and compiled; see `CacheInfo`."""
        return self.cache.info()

    def clear_cache(self) -> None:
        """Forget all tapes and compiled code, and set the counts to zero."""
        self.cache.clear()

    @property
    def tapes(self) -> list[Tape]:
        """The tapes held now, most recently used first."""
        return [variant.finished for variant in self.cache.all_variants()]


class BoundDerived:
    """A derived method, bound to its instance; the instance is an ordinary first argument."""

    def __init__(self, derived: Derived, instance: Any) -> None:
        self._function = derived
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _position(p: int, count: int, derived: Derived) -> int:
    if not -count <= p < count:
        raise ArgumentError(
            f"{derived.recipe.kind} of {describe(derived.f)}: argnums is "
            f"{derived.recipe.argnums}, and {count} positional arguments were passed. Arguments to "
            "differentiate are passed by position"
        )
    return p % count


def _constant(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape of zeros for each input: the function's result depends on none of them."""
    from tapegrad.pipeline import gradient

    zeros = replace(tape, outputs=(Literal(np.float64(0)), *tape.outputs))
    return gradient(zeros, wrt, keep=range(1, len(zeros.outputs)))
