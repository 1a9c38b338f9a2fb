"""Objects that hold their parameters, as functions of the parameters.

    class Affine:
        def __init__(self, W, b):
            self.W, self.b = W, b

        def forward(self, x):
            return x @ self.W + self.b

    f, params = functionalize(Affine(W, b))
    f(params, x)                     -->  x @ params["W"] + params["b"]

A call runs the method on a copy. Only the object and the parts that hold its arrays are copied.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tapegrad.core.late import load
from tapegrad.errors import ArgumentError
from tapegrad.nn.copying import Plan, functional

_FOREIGN = {*sys.stdlib_module_names, "numpy", "scipy", "numba", "tapegrad"} - {"__main__"}


def functionalize(obj: Any, state: bool | Iterable[str] = ()) -> Any:
    """The parameters of an object, and the object as a function of them.

    `f(params, *args)` equals `obj.forward(*args)`, or `obj(*args)` without a `forward`, with these
    arrays instead of the object's. It changes neither the object nor `params`: `forward` writes to
    copies, and its writes are lost unless named as `state`.

        >>> class Scaled:
        ...     def __init__(self): self.w = np.array([1.0, 2.0])
        ...     def forward(self, x): return self.w * x
        >>> f, params = functionalize(Scaled())
        >>> f(params, 10.0)
        array([10., 20.])

    The parameters are the arrays of floats or complex numbers among the object's attributes, and
    in the objects, lists, tuples and dicts among them; an array in two places is one parameter.
    Everything else is read from the object when `f` is called: numbers, modes, random generators.

    A `torch.nn.Module` is run by PyTorch, which also computes the derivatives, in both modes and of
    any order. Its parameters are those with `requires_grad`; its state is its buffers.

    Parameters
    ----------
    obj : an object with `forward` or `__call__`, with or without parameters, such as a layer or a
        criterion. For a module or package the result is a namespace whose classes make functions:
        `functionalize(layers).Affine(W, b)` is `functionalize(layers.Affine(W, b))`.
    state : names or paths of attributes that aren't parameters and that `forward` writes, such as
        running means. Then `f(params, state, *args)` returns the result and the new state.
        True means all buffers of a PyTorch module.

    Returns
    -------
    f : the function, pure except for random numbers.
    params : a dict of copies of the arrays by their paths, such as "layers.0.W".
    state : if `state` is passed, a dict of copies of that state.

    Raises
    ------
    ArgumentError : the object has neither method, is a class or a function, or lacks that state;
        from `f`: `params` lacks some of the object's paths.
    """
    if isinstance(obj, types.ModuleType):
        return Namespace(obj)
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.nn.Module):
        return load(("tapegrad.torch.functions",)).functional(obj, state)
    method = "forward" if hasattr(obj, "forward") else "__call__"
    if isinstance(obj, (type, types.FunctionType, types.MethodType)) or not hasattr(obj, method):
        raise ArgumentError(
            f"functionalize needs an object with forward or __call__, not {obj!r}. Pass an "
            "instance instead of a class; a function needs no functionalize"
        )
    if isinstance(state, bool):
        raise ArgumentError(
            "state=True means the buffers of a PyTorch module, and this is another object. Name "
            "the attributes"
        )
    names = frozenset([state] if isinstance(state, str) else state)
    plan, found, held = _planned(obj, names)
    f = functional(type(obj).__name__, obj, method, plan)
    return (f, found, held) if names else (f, found)


class Namespace:
    """A module whose classes make functions of the parameters of their instances."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, types.ModuleType):
            inside = value.__name__.startswith(self._module.__name__ + ".")
            return Namespace(value) if inside else value
        if not isinstance(value, type) or not any(
            hasattr(part, "__dict__") and ("forward" in vars(part) or "__call__" in vars(part))
            for part in value.__mro__
        ):
            return value

        @functools.wraps(value, updated=())
        def made(*args: Any, **kwargs: Any) -> Any:
            return functionalize(value(*args, **kwargs))

        return made

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"<functions of {self._module.__name__}>"


def _parts(x: Any) -> list[tuple[Any, Any]]:
    """The contents of an object or container, by attribute, key or position.

    The contents of a function are its closure variables.
    """
    if isinstance(x, dict):
        return list(x.items())
    if isinstance(x, (list, tuple)):
        return list(enumerate(x))
    if isinstance(x, types.MethodType):
        return [("__self__", x.__self__)]
    if isinstance(x, functools.partial):
        return [("func", x.func), ("args", x.args), ("keywords", x.keywords)]
    if isinstance(x, types.FunctionType):
        cells = zip(x.__code__.co_freevars, x.__closure__ or (), strict=True)
        return [(name, x) for name, x in map(_content, cells) if not isinstance(x, np.ndarray)]
    if isinstance(x, type) or type(x).__module__.partition(".")[0] in _FOREIGN:
        return []
    slots = [name for c in type(x).__mro__ for name in _slots(c) if hasattr(x, name)]
    return [*getattr(x, "__dict__", {}).items(), *[(name, getattr(x, name)) for name in slots]]


def _slots(cls: type) -> Iterator[str]:
    names = vars(cls).get("__slots__", ())
    for name in [names] if isinstance(names, str) else names:
        if name not in ("__dict__", "__weakref__"):
            yield f"_{cls.__name__.lstrip('_')}{name}" if name[:2] == "__" != name[-2:] else name


def _content(cell: tuple[str, Any]) -> tuple[str, Any]:
    try:
        return cell[0], cell[1].cell_contents
    except ValueError:  # the cell is still empty
        return cell[0], None


def _planned(obj: Any, names: frozenset[str]) -> tuple[Plan, dict[str, Any], dict[str, Any]]:
    """The plan of a copy; the parameters; and the state with these names."""
    plan, holders = Plan(), _holders(obj, names)
    params: dict[str, Any] = {}
    state: dict[str, Any] = {}
    numbers: dict[int, int] = {}
    named: set[str] = set()

    def visit(x: Any, path: str) -> int:
        number = numbers[id(x)] = len(plan.kinds)
        plan.kinds.append(_kind(x, path) if id(x) in holders else "shared")
        kind = plan.kinds[number]
        if kind == "given":
            plan.paths[number], params[path] = path, x.copy()
        if kind in ("given", "copied", "shared"):
            return number
        how = "item" if isinstance(x, (dict, list, tuple)) else "attribute"
        fixed, inside = kind in ("tuple", "method", "partial"), []
        for key, part in _parts(x):
            whole = _path(path, key)
            asked = names & {key, whole}
            slotted = how == "attribute" and key not in getattr(x, "__dict__", ())
            if not (asked or fixed or id(part) in holders or slotted):
                continue
            if id(part) not in numbers or asked:
                plan.reached.append((number, how, key))
            if asked:
                at = len(plan.kinds)
                plan.kinds.append("given")
                plan.paths[at], plan.state[whole] = whole, (number, how, key)
                state[whole] = part.copy() if isinstance(part, np.ndarray) else part
                named.update(asked)
            else:
                at = numbers[id(part)] if id(part) in numbers else visit(part, whole)
            inside.append(at)
            if not fixed:
                plan.filled.append((number, how, key, at))
        if fixed:
            plan.fixed.append((number, inside))
        return number

    visit(obj, "")
    missing = names - named
    if missing:
        raise ArgumentError(f"{type(obj).__name__} has no attribute {', '.join(sorted(missing))}")
    return plan, params, state


def _kind(x: Any, path: str) -> str:
    """How to copy a part that holds arrays."""
    if isinstance(x, types.FunctionType):
        raise ArgumentError(
            f"{path} is a function whose closure holds an object with parameters, and would "
            "use the object's own parameters. Write a method"
        )
    if isinstance(x, np.ndarray):
        return "given" if x.dtype.kind in "fc" else "copied"
    if isinstance(x, (dict, list)):
        return "container"
    kinds = {tuple: "tuple", types.MethodType: "method", functools.partial: "partial"}
    own = "object" if hasattr(x, "__dict__") else "slotted"
    return next((kind for cls, kind in kinds.items() if isinstance(x, cls)), own)


def _path(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _holders(obj: Any, names: frozenset[str]) -> set[int]:
    """The ids of the arrays, and of all objects that hold arrays or state, directly or not."""
    waiting, known, holders = [obj], {id(obj)}, set()
    inside: dict[int, list[int]] = {}  # part --> its holders
    while waiting:
        x = waiting.pop()
        if isinstance(x, np.ndarray):
            holders.add(id(x))
            continue
        for key, part in _parts(x):
            inside.setdefault(id(part), []).append(id(x))
            if key in names:
                holders.add(id(x))
            if id(part) not in known:
                known.add(id(part))
                waiting.append(part)
    spreading = [*holders]
    while spreading:
        for one in inside.get(spreading.pop(), ()):
            if one not in holders:
                holders.add(one)
                spreading.append(one)
    return holders
