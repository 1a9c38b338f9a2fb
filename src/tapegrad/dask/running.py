"""A function over parts: a call builds a graph, with a task for each part and sum, for Dask."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from tapegrad.core.frames import short_traceback, warn
from tapegrad.core.request import describe
from tapegrad.dask.jobs import Job, check_loss, part_rows, part_share
from tapegrad.dask.parts import is_dask, parts_of
from tapegrad.dask.sending import Sent, everywhere, running_client
from tapegrad.dask.sums import Pairs, Share, together
from tapegrad.dask.waiting import computed
from tapegrad.errors import ArgumentError, UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.runtime.derived import Derived
from tapegrad.tracing.frontend.numpy.undispatched import has_traced
from tapegrad.tracing.recording.trace import refusing
from tapegrad.trees import tree_flatten, tree_leaves, tree_map, tree_unflatten

MOST_AT_ONCE = 4  # parts of an iterable in a graph, for each thread of the workers
PARTS_TRIED = 8  # most parts tried until one has enough rows to check the loss

_numbers = count()


class InParts:
    """A derived function whose arguments `over` come in parts.

    `further` names positional arguments after the loss's own, as in `hvp`; `plus` is the same
    derivative of a function of the other arguments, and is added once."""

    def __init__(
        self,
        derived: Derived,
        over: str | Sequence[str],
        *,
        reduce: str = "sum",
        plus: Callable[..., Any] | None = None,
        further: Sequence[str] = (),
        rows: int | None = None,
        check: bool = True,
    ) -> None:
        self.derived, self.loss = derived, derived.f
        self.__name__ = derived.__name__
        self.__doc__ = derived.__doc__
        self.__wrapped__ = derived.f
        self._label = f"dask.{derived.__name__}"
        self._over = (over,) if isinstance(over, str) else tuple(over)
        self._parameters = _checked_parameters(derived.f, self._over, self._label)
        self._reduce, self._plus, self._further = reduce, plus, tuple(further)
        if reduce not in ("sum", "mean", "rows"):
            raise ArgumentError(f'{self._label}: reduce is "sum" or "mean", not {reduce!r}')
        if rows is not None and (not isinstance(rows, int) or rows < 1):
            raise ArgumentError(f"{self._label}: rows is a number of rows, not {rows!r}")
        self._rows = rows
        self._unchecked = PARTS_TRIED if check and reduce != "rows" else 0
        self._job: Job | None = None

    def __repr__(self) -> str:
        return f"<{self.__name__} in parts of {', '.join(self._over)}>"

    @short_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if has_traced((args, kwargs)):
            raise refusing(
                UnsupportedError(
                    f"{self._label} is called with traced values{at_line()}: its parts run "
                    "outside of the trace. Differentiate the loss further instead, as "
                    "tapegrad.dask.hvp does"
                )
            )
        named, others, names = self._arguments(args, kwargs)
        if self._job is None:  # kept, so that each variant is checked once
            self._job = Job(self.derived, self.loss, names)
        job = Sent(Job(self.derived, self.loss, names) if names != self._job.names else self._job)
        tasks = self._tasks(job, others, parts_of(named, self._label, self._rows))
        is_stream = not all(map(_has_length, named.values()))
        if self._reduce == "rows":
            return _rows_together(tasks, named, self._label)
        total = _summed(tasks, is_stream, self._label)
        return self._finished(total, others)

    def _arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], Sequence[str]]:
        """The arguments in parts and the others, by name, and the names of the positional ones."""
        args, further = list(args), []
        if self._further:
            if len(args) < len(self._further):
                raise ArgumentError(
                    f"{self._label} takes {' and '.join(self._further)} after the arguments of "
                    f"{describe(self.loss)}"
                )
            args, further = args[: -len(self._further)], args[-len(self._further) :]
        bound = inspect.signature(self.loss).bind(*args, **kwargs)
        bound.apply_defaults()
        given = {}
        for name, x in bound.arguments.items():
            kind = self._parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                given.update(x)
            elif kind is inspect.Parameter.VAR_POSITIONAL:
                if x:
                    raise ArgumentError(f"{self._label}: *{name} can't be passed to parts; name it")
            else:
                given[name] = x
        positional = [
            n for n in given if n in self._parameters and _is_positional(self._parameters[n])
        ]
        given.update(zip(self._further, further, strict=True))
        named = {name: given.pop(name) for name in self._over}
        return named, given, (*positional, *self._further)

    def _tasks(
        self, job: Sent, others: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]
    ) -> Iterator[Any]:
        """The task of each part."""
        from dask.delayed import delayed

        label, number = self.__name__, next(_numbers)
        generators = {n: x for n, x in others.items() if isinstance(x, np.random.Generator)}
        same = {n: x for n, x in others.items() if n not in generators}
        sent_job, sent = everywhere(job), everywhere(Sent(same))
        function = part_rows if self._reduce == "rows" else part_share
        options = () if self._reduce == "rows" else (self._reduce == "mean",)
        for k, part in enumerate(parts):
            own = {n: x.spawn(1)[0] for n, x in generators.items()}
            if self._unchecked and not generators:
                check = delayed(check_loss)(sent_job, sent, part, self._label, *options)
                self._unchecked -= self._unchecked if computed([check], self._label)[0] else 1
            key = f"{label}-{id(self)}-{number}-{k}"
            yield delayed(function)(sent_job, sent, own, part, k, *options, dask_key_name=key)

    def _finished(self, total: Share, others: Mapping[str, Any]) -> Any:
        if total.not_finite:
            parts = ", ".join(map(str, total.not_finite))
            warn(f"{self._label}: NaN or infinity came of part {parts}, counted from 0")
        result = total.total
        if self._reduce == "mean":
            result = tree_map(lambda x: x / total.rows, result)
        if self._plus is not None:
            result = tree_map(np.add, result, self._plus(others))
        leaves, structure = tree_flatten(result)
        pairs = zip(leaves, total.halves, strict=True)
        return tree_unflatten(structure, [x if h is None else x.astype(h) for x, h in pairs])


def _checked_parameters(
    f: Callable[..., Any], over: Sequence[str], label: str
) -> Mapping[str, inspect.Parameter]:
    parameters = inspect.signature(f).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in over:
        if not isinstance(name, str) or (name not in parameters and not open_ended):
            raise ArgumentError(
                f"{label}: over names arguments that come in parts, and {describe(f)} has no "
                f"argument {name!r}. It has {', '.join(parameters)}"
            )
    if not over:
        raise ArgumentError(f"{label}: over names at least one argument that comes in parts")
    return parameters


def _is_positional(p: inspect.Parameter) -> bool:
    return p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)


def _has_length(x: Any) -> bool:
    """Whether the number of parts is known in advance."""
    return all(hasattr(leaf, "shape") for leaf in tree_leaves(x)) or isinstance(x, (list, tuple))


def _summed(tasks: Iterable[Any], is_stream: bool, label: str) -> Share:
    """The sum over all parts.

    The parts of an iterable are computed in groups, which bounds the number of parts in memory; the
    order of the sum stays the same.
    """
    from dask.delayed import delayed

    add = delayed(together)
    pairs = Pairs(lambda a, b: add(a, b))
    if not is_stream:
        for task in tasks:
            pairs.put(task)
        if not pairs.waiting:
            raise ArgumentError(f"{label}: there are no parts")
        return computed([pairs.total()], label)[0]
    tasks, size = iter(tasks), MOST_AT_ONCE * _threads()
    while group := list(islice(tasks, size)):
        for task in group:
            pairs.put(task)
        pairs.waiting = computed(pairs.waiting, label)
    if not pairs.waiting:
        raise ArgumentError(f"{label}: there are no parts")
    return computed([pairs.total()], label)[0]


def _threads() -> int:
    from dask.system import CPU_COUNT

    client = running_client()
    return CPU_COUNT if client is None else max(1, sum(client.nthreads().values()))


def _rows_together(tasks: Iterable[Any], named: Mapping[str, Any], label: str) -> Any:
    """The concatenated results of the parts: dask arrays if some argument is one."""
    from dask.base import persist
    from dask.delayed import delayed

    given = tree_leaves([*named.values()])
    if not any(map(is_dask, given)):
        results = computed(tasks, label)
        return tree_map(lambda *xs: np.concatenate(xs), *results)
    import dask.array as da

    tasks = list(tasks)
    (first,) = persist(tasks[0])
    (known,) = computed([first], label)
    leaves = tree_leaves(known)
    lengths = next(x.chunks[0] for x in given if is_dask(x))
    numbers = iter(range(len(leaves)))

    def whole(leaf: Any) -> Any:
        k = next(numbers)
        blocks = []
        for task, n in zip([first, *tasks[1:]], lengths, strict=True):
            rows = leaf.shape[0] if math.isnan(n) else int(n)
            block = delayed(_leaf)(task, k)
            blocks.append(da.from_delayed(block, (rows, *leaf.shape[1:]), leaf.dtype))
        return da.concatenate(blocks)

    return tree_map(whole, known)


def _leaf(tree: Any, k: int) -> Any:
    return tree_leaves(tree)[k]
