"""An optimiser: a rule for one array, applied to all arrays of a tree.

    state = optimiser.init(params)
    params, state = optimiser.update(grads, state, params)

`update` is pure: it returns new parameters and a new state. It is compiled, as one function for all
leaves, and inlined into a traced function that calls it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.api import jit
from tapegrad.core.arrays import read
from tapegrad.core.locks import cached_property
from tapegrad.errors import ArgumentError
from tapegrad.optim.clipping import clip_by_norm, clip_by_value, is_trained
from tapegrad.runtime.derived import derived
from tapegrad.runtime.transformations import Into
from tapegrad.tracing.memory.aliasing import lie_apart
from tapegrad.tracing.runs.traced import kept_as
from tapegrad.trees import Path, parts_at, tree_flatten, tree_unflatten

Schedule = Callable[[Any], Any]
# (count of this update, learning rate, parameter, gradient, slots) -> (parameter, slots)
Rule = Callable[[Any, Any, Any, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]


class State(NamedTuple):
    """The state of an optimiser: the number of updates so far, and its *slots*, trees like the
    parameters, by name (the momentum of `sgd`, both moments of `adam`)."""

    count: Any
    slots: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Optimiser:
    """A map from gradients to updated parameters.

    name : the name of the user's function.
    rule : the rule for one array: `rule(count, rate, p, g, slots)` is the new array and the new
        slots, where `count` is 1 at the first update.
    rate : the learning rate, a number or a schedule.
    slots : the initial value of each slot, by name, as a function of the array.
    before : a function applied to the tree of gradients first: clipping.
    """

    name: str
    rule: Rule = field(repr=False)
    rate: float | Schedule
    slots: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict, repr=False)
    before: Callable[[Any], Any] | None = field(default=None, repr=False)

    def init(self, params: Any) -> State:
        """The state before the first update of these parameters."""
        leaves, structure = tree_flatten(params)

        def slot(start: Callable[[Any], Any]) -> Any:
            made = [start(read(np.asarray(x)))[()] if is_trained(x) else None for x in leaves]
            return tree_unflatten(structure, made)

        return State(np.int64(0), {name: slot(start) for name, start in self.slots.items()})

    def update(
        self, grads: Any, state: State, params: Any, *, inplace: bool = False
    ) -> tuple[Any, State]:
        """The parameters and the state after one step.

        Parameters
        ----------
        grads : a tree like the parameters. A parameter with the gradient None stays unchanged.
        state : the state of `init`, or of the last update.
        params : a tree of arrays and floats. Other leaves (integers, strings) stay unchanged.
        inplace : write the new values into the arrays of `params` and `state`, and return those.
            Leaves that aren't arrays are new objects nevertheless.

        Returns
        -------
        `(params, state)`, with the shapes and dtypes of the arguments. The state of a float16 or
        bfloat16 parameter is float32.

        Raises
        ------
        ArgumentError : the trees have different structures; the shapes of a gradient and of its
            parameter differ; one of them is complex; or, in place, an array is read-only or shares
            memory with another one.
        """
        if not inplace:
            return self._updated(grads, state, params)
        places = check_places(params=params, state=state)
        return written(places, self._updated_in_place(grads, state, params))

    def clipped(self, *, norm: float | None = None, value: float | None = None) -> Optimiser:
        """The same optimiser with clipped gradients: by `value` first, then by `norm`.

        See `clip_by_norm` and `clip_by_value`.
        """
        earlier = self.before

        def before(grads: Any) -> Any:
            grads = grads if earlier is None else earlier(grads)
            grads = grads if value is None else clip_by_value(grads, value)
            return grads if norm is None else clip_by_norm(grads, norm)

        return replace(self, before=before)

    @cached_property
    def _updated(self) -> Callable[[Any, State, Any], tuple[Any, State]]:
        """`update`, compiled."""
        return jit(self.plain_update)

    @cached_property
    def _updated_in_place(self) -> Callable[[Any, State, Any], tuple[Any, State]]:
        """`update`, compiled to write results to the memory of parameters and state if possible."""
        into = Into(into=((0, 2), (1, 1)))
        found: Callable[[Any, State, Any], Any] = derived(self.plain_update, into, None)
        return found

    def plain_update(self, grads: Any, state: State, params: Any) -> tuple[Any, State]:
        """`update` as plain NumPy, for functions that are traced as a whole."""
        if self.before is not None:
            grads = self.before(grads)
        rate = self.rate(state.count) if callable(self.rate) else self.rate
        count = state.count + 1
        paths, leaves, structure = tree_flatten(params, paths=True)
        columns = {name: parts_at(structure, tree) for name, tree in state.slots.items()}
        after: list[Any] = []
        slots_after: dict[str, list[Any]] = {name: [] for name in columns}
        for k, (path, p, g) in enumerate(
            zip(paths, leaves, parts_at(structure, grads), strict=True)
        ):
            slots = {name: column[k] for name, column in columns.items()}
            if g is not None and is_trained(p):
                _check(self.name, path, p, g)
                half, p = kept_as(p), read(p)
                p, slots = self.rule(count, as_of(rate, p), p, as_of(read(g), p), slots)
                p = p if half is None else p.astype(half)
            after.append(p)
            for name, value in slots.items():
                slots_after[name].append(value)
        made = {name: tree_unflatten(structure, found) for name, found in slots_after.items()}
        return tree_unflatten(structure, after), State(count, made)


def as_of(value: Any, p: Any) -> Any:
    """A number in the precision of a parameter, so that float32 parameters stay float32."""
    return value.astype(p.dtype) if hasattr(value, "dtype") and hasattr(p, "dtype") else value


def _check(name: str, path: Path, p: Any, g: Any) -> None:
    """Check that a gradient can move a parameter: equal shapes, real numbers."""
    place = "".join(f"[{key!r}]" for key in path)
    if np.shape(p) != np.shape(g):
        raise ArgumentError(
            f"{name}: params{place} has shape {np.shape(p)}, and its gradient {np.shape(g)}"
        )
    if np.iscomplexobj(p) or np.iscomplexobj(g):
        which = "is" if np.iscomplexobj(p) else "has a gradient that is"
        raise ArgumentError(
            f"{name}: params{place} {which} complex, and steps are taken along real axes. Pass its "
            "real and its imaginary part"
        )


def check_places(**trees: Any) -> list[Any]:
    """The leaves of some trees, in the order of the trees' names.

    Checks that all arrays among them are writeable, and that no two share memory.
    """
    leaves, structure = tree_flatten(trees)

    def name(k: int) -> str:
        first, *path = structure.paths()[k]
        return first + "".join(f"[{key!r}]" for key in path)

    arrays = [(k, x) for k, x in enumerate(leaves) if isinstance(x, np.ndarray)]
    for k, x in arrays:
        if not x.flags.writeable:
            raise ArgumentError(f"inplace: {name(k)} can't be written to: it is read-only")
    if lie_apart([x for _, x in arrays]):
        return leaves
    places = sorted([(*np.lib.array_utils.byte_bounds(x), k) for k, x in arrays])
    for at, (_, end, k) in enumerate(places):
        for start, _, other in places[at + 1 :]:
            if start >= end:
                break
            if np.may_share_memory(leaves[k], leaves[other]) and _share_memory(
                leaves[k], leaves[other]
            ):
                raise ArgumentError(
                    f"inplace: {name(k)} and {name(other)} share memory, so a write to one "
                    "would overwrite the other. Pass copies, or leave inplace out"
                )
    return leaves


def _share_memory(x: np.ndarray, y: np.ndarray) -> bool:
    try:
        return np.shares_memory(x, y, max_work=1000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def written(places: Sequence[Any], values: Any) -> Any:
    """A tree of values, with arrays written to their places.

    `places` has one entry for each leaf: the array into which its value belongs, unless the value
    already lies there.
    """
    leaves, structure = tree_flatten(values)
    found = [x if isinstance(x, np.ndarray) else y for x, y in zip(places, leaves, strict=True)]
    if all(map(operator.is_, found, leaves)):
        return values
    for place, value in zip(found, leaves, strict=True):
        if place is not value:
            np.copyto(place, value)
    return tree_unflatten(structure, found)
