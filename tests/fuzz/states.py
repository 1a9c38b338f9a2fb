"""Where a program finds what it isn't passed: globals, closures, attributes, items, defaults.

A value that is captured has a name and a place. The program's text says the place where a line says
the name; between calls the place is given the value of the next call, which is another object or
the same one with other contents.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# What a line says instead of the name; a place that isn't here is a variable of that name.
PLACES = {
    "global": "{name}",
    "closure": "{name}",
    "default": "{name}",
    "keyword default": "{name}",
    "item": "settings['{name}']",
    "nested item": "layers[0]['{name}']",
    "element": "rows[{k}]",
    "attribute": "box.{name}",
    "instance": "self.{name}",
    "class": "Box.{name}",
    "class of an instance": "self.{name}",
    "property": "self.{name}",
    "module": "config.{name}",
}
SELVES = ("instance", "class of an instance", "property")


def said(lines: tuple[str, ...], places: Mapping[str, str]) -> tuple[str, ...]:
    """The lines with each captured name replaced by how it is reached."""
    for k, (name, place) in enumerate(places.items()):
        text = PLACES[place].format(name=name, k=k)
        if text != name:
            lines = tuple(re.sub(rf"\b{name}\b", text, line) for line in lines)
    return lines


def text(arguments: list[str], body: tuple[str, ...], places: Mapping[str, str]) -> str:
    """The function as source text, in a class or in another function if its values are there."""

    def those(*wanted: str) -> list[str]:
        return [name for name, place in places.items() if place in wanted]

    given = [*arguments, *[f"{name}=None" for name in those("default")]]
    kept = those("keyword default")
    given += ["*", *[f"{name}=None" for name in kept]] if kept else []
    if those(*SELVES):
        given.insert(0, "self")
    head = f"def program({', '.join(given)}):"
    lines = [head, *["    " + line for line in said(body, places)]]
    if those(*SELVES):
        members: list[str] = []
        for name in those("property"):
            members += ["@property", f"def {name}(self):", f"    return self._{name}", ""]
        lines = ["class Box:", *["    " + line for line in (*members, *lines)]]
    cells = those("closure")
    if cells:
        found = "Box" if those(*SELVES) else "program"
        lines = ["    " + line for line in lines]
        lines = [f"def make({', '.join(cells)}):", *lines, f"    return {found}"]
    return "\n".join(lines)


def function(source: str, file: str, names: dict[str, Any], places: Mapping[str, str]) -> Any:
    """The function that the text makes; its places hold None until `enter`."""
    names.update(settings={}, layers=[{}], rows=[None] * len(places))
    names.update(box=type("Box", (), {})(), Box=type("Box", (), {}))
    names["config"] = types.ModuleType("config")
    names["config"].__file__ = "config.py"  # a module of the user's, not a library
    exec(compile(source, file, "exec"), names)
    cells = [name for name, place in places.items() if place == "closure"]
    made = names["make"](*[None] * len(cells)) if cells else names.get("program", names["Box"])
    if isinstance(made, type):
        if cells:
            names["Box"] = made
        made = made().program
    made.__globals__["_places"] = dict(places)
    return made


def enter(f: Callable[..., Any], values: Mapping[str, Any], anew: bool = True) -> None:
    """Give a program's places the values of a call: bound `anew`, or written into the array that is
    there if it is of this shape and dtype, as into a list or a dict. Names without a place are
    globals."""
    places = f.__globals__["_places"]
    for name, value in values.items():
        if name not in places:
            f.__globals__[name] = value
            continue
        here = held(f, name)
        if not anew and _takes(here, value):
            here[...] = value
        elif not anew and type(here) is type(value) is np.random.RandomState:
            here.set_state(value.get_state())
        elif not anew and type(here) is type(value) is list:
            here[:] = value
        elif not anew and type(here) is type(value) is dict:
            here.clear()
            here.update(value)
        else:
            _put(f, name, places[name], list(places).index(name), value)


def _takes(here: Any, value: Any) -> bool:
    if type(here) is not np.ndarray or type(value) is not np.ndarray:
        return False
    same = (here.shape, here.dtype, here.strides) == (value.shape, value.dtype, value.strides)
    return same and here.ndim > 0 and here.flags.writeable


def held(f: Callable[..., Any], name: str) -> Any:
    """What a place holds."""
    names = f.__globals__
    place = names["_places"].get(name, "global")
    plain: Any = getattr(f, "__func__", f)
    if place == "closure":
        cells = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True))
        return cells[name].cell_contents if name in cells else None
    if place == "default":
        count = list(plain.__code__.co_varnames[: plain.__code__.co_argcount])
        return plain.__defaults__[count.index(name) - len(count)]
    if place == "keyword default":
        return plain.__kwdefaults__[name]
    if place == "global":
        return names.get(name)
    if place == "item":
        return names["settings"].get(name)
    if place == "nested item":
        return names["layers"][0].get(name)
    if place == "element":
        return names["rows"][list(names["_places"]).index(name)]
    if place == "property":
        return getattr(f.__self__, f"_{name}", None)  # type: ignore[attr-defined]
    return getattr(_owner(f, place), name, None)


def _owner(f: Any, place: str) -> Any:
    """Whose attribute it is."""
    if place in ("instance", "property"):
        return f.__self__
    if place == "class of an instance":
        return type(f.__self__)
    return f.__globals__[{"attribute": "box", "class": "Box", "module": "config"}[place]]


def _put(f: Any, name: str, place: str, k: int, value: Any) -> None:
    names = f.__globals__
    plain = getattr(f, "__func__", f)
    if place == "closure":
        cells = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True))
        if name in cells:  # it isn't where no line says it
            cells[name].cell_contents = value
    elif place == "default":
        args = list(plain.__code__.co_varnames[: plain.__code__.co_argcount])
        found = list(plain.__defaults__)
        found[args.index(name) - len(args)] = value
        plain.__defaults__ = tuple(found)
    elif place == "keyword default":
        plain.__kwdefaults__ = {**plain.__kwdefaults__, name: value}
    elif place == "global":
        names[name] = value
    elif place == "item":
        names["settings"][name] = value
    elif place == "nested item":
        names["layers"][0][name] = value
    elif place == "element":
        names["rows"][k] = value
    else:
        setattr(_owner(f, place), f"_{name}" if place == "property" else name, value)
