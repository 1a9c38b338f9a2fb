"""Copies of objects with other arrays in them.

This file is traced like the user's code: each read of the object becomes a guard of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError


@dataclass
class Plan:
    """The parts to copy of an object, by number; the object itself is part 0.

    Kinds of parts: "given" (passed by the caller under its path); "copied"; "container", "object"
    and "slotted" (made empty, then filled); "tuple", "method" and "partial" (made of their parts);
    "shared" (not copied).
    """

    kinds: list[str] = field(default_factory=list)
    reached: list[tuple[int, str, Any]] = field(default_factory=list)  # parent, access, key
    paths: dict[int, str] = field(default_factory=dict)
    fixed: list[tuple[int, list[int]]] = field(default_factory=list)  # inner parts first
    filled: list[tuple[int, str, Any, int]] = field(default_factory=list)
    state: dict[str, tuple[int, str, Any]] = field(default_factory=dict)


def functional(name: str, obj: Any, method: str, plan: Plan) -> Callable[..., Any]:
    """The function of the parameters of a plan, then of the method's arguments."""
    params = [path for path in plan.paths.values() if path not in plan.state]

    def f(params: Any, *args: Any, **kwargs: Any) -> Any:
        check(name, params, names)
        return getattr(filled(obj, plan, params)[0], method)(*args, **kwargs)

    def with_state(params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        check(name, params, names)
        check(name, state, plan.state)
        made = filled(obj, plan, {**params, **state})
        result = getattr(made[0], method)(*args, **kwargs)
        places = plan.state.items()
        return result, {path: part(made[of], how, key) for path, (of, how, key) in places}

    names = dict.fromkeys(params)
    found = with_state if plan.state else f
    found.__name__ = found.__qualname__ = name
    return found


def check(name: str, given: Any, names: Any) -> None:
    """Raise an ArgumentError unless `given` has exactly the paths `names`."""
    for path in names:
        if path not in given:
            raise ArgumentError(f"{name} has {path!r}, and the parameters passed for it have not")
    for path in given:
        if path not in names:
            raise ArgumentError(f"{name} has no {path!r}, but a parameter of that path is passed")


def part(x: Any, how: str, key: Any) -> Any:
    """An attribute of an object, or an item of a container."""
    return getattr(x, key) if how == "attribute" else x[key]


def filled(obj: Any, plan: Plan, given: Any) -> list[Any]:
    """The parts of a copy, with the parameters `given` filled in."""
    live = [obj]
    for of, how, key in plan.reached:
        live.append(part(live[of], how, key))
    made: list[Any] = []
    for number, kind in enumerate(plan.kinds):
        made.append(begun(kind, live[number], given, plan.paths.get(number)))
    for number, inside in plan.fixed:
        parts = [made[k] for k in inside]
        made[number] = rebuilt(plan.kinds[number], live[number], parts)
    for number, how, key, source in plan.filled:
        if how == "attribute":
            object.__setattr__(made[number], key, made[source])
        else:
            made[number][key] = made[source]
    return made


def begun(kind: str, x: Any, given: Any, path: str | None) -> Any:
    """A part as far as it can be made without its own parts."""
    if kind == "given":
        value = given[path]
        return value.copy() if isinstance(value, np.ndarray) else value
    if kind in ("copied", "container"):
        return x.copy()
    if kind == "slotted":
        return object.__new__(type(x))
    if kind == "object":
        made: Any = object.__new__(type(x))
        vars(made).update(vars(x))
        return made
    return x


def rebuilt(kind: str, x: Any, parts: Sequence[Any]) -> Any:
    if kind == "method":
        return MethodType(x.__func__, parts[0])
    if kind == "partial":
        return partial(parts[0], *parts[1], **parts[2])
    return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
