"""Handlers of the instructions that look up and set names: globals, cells, modules.

Short names: `a` is the activation of a frame, `arg` the instruction's argument. A handler may
return a function, which is called with the instruction's result.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.uses import Then
from tapegrad.observe.objects.naming import Key
from tapegrad.observe.program.frames import MISSING, local


def load_global(a: Activation, name: str) -> Then | None:
    held = a.frame.f_globals
    if name in held:
        place = functools.partial(a.o.globals_place, held)
        found: Then | None = dispatch.found(a, "STORE_GLOBAL", name, place, ("item", Key(name)))
        if found is not None:
            return found
    if name not in a.known:
        a.known.add(name)
        a.o.name(a.frame.f_globals, name)
    a.program[a.frame.f_lasti >> 1] = None  # recorded once is enough
    return None


def load_name(a: Activation, name: str) -> None:
    held = a.frame.f_locals
    if held is a.frame.f_globals or name not in held:
        a.o.name(a.frame.f_globals, name)
    else:
        place = a.o.reads.place(held)
        if place is not None:
            a.o.item(held, name)


def load_name_from(a: Activation, name: str) -> None:
    """Record a look-up in a class's body: the name is in the dict on the stack, or is a global."""
    held = a.top()
    if not isinstance(held, dict) or name not in held:
        a.o.name(a.frame.f_globals, name)
    elif a.o.reads.place(held) is not None:
        a.o.item(held, name)


def store_name(a: Activation, name: str) -> None:
    if a.frame.f_locals is a.frame.f_globals:
        store_global(a, name)


def delete_name(a: Activation, name: str) -> None:
    load_name(a, name)
    store_name(a, name)


def store_global(a: Activation, name: str) -> None:
    o, held = a.o, a.frame.f_globals
    if any(held is made for made in o.made_globals):
        return
    place = o.globals_place(held)
    o.reads.write(place, ("item", Key(name)), f"{{}}[{o.reads.key(name)}]", name)


def delete_global(a: Activation, name: str) -> None:
    """Record the deletion of a global. The look-up is recorded, too, since it fails if the name
    isn't there."""
    a.o.name(a.frame.f_globals, name)
    store_global(a, name)


def load_deref(a: Activation, where: tuple[int, str, bool]) -> Then | None:
    k, name, own = where
    if own:
        return None
    cell = local(a.address, k)
    place, at = a.o.cells.get(id(cell), (None, 0))
    found: Then | None = dispatch.found(a, "STORE_DEREF", name, lambda: place, ("cell", at))
    if found is None:
        a.o.cell(cell, name, a.function)
    return found


def store_deref(a: Activation, where: tuple[int, str, bool]) -> None:
    k, name, own = where
    known = None if own else a.o.cells.get(id(local(a.address, k)))
    if known is not None:
        place, at = known
        text = f"{{}}.__closure__[{at}].cell_contents"
        a.o.reads.write(place, ("cell", at), text, name)


def delete_deref(a: Activation, where: tuple[int, str, bool]) -> None:
    """Record the deletion of a cell's value. The look-up is recorded, too, since it fails if the
    cell is empty."""
    load_deref(a, where)
    store_deref(a, where)


def import_name(a: Activation, name: str) -> Then:
    def then(module: Any) -> None:
        if module is MISSING:
            if a.users:  # a library may do without the module
                a.o.reads.use_once(f"import {name}")
            return
        known = [n for n in (getattr(module, "__name__", ""), name) if sys.modules.get(n) is module]
        a.o.loaded(known[0] if known else "", module)

    return then


def import_from(a: Activation, name: str) -> None:
    a.o.lookups.attribute(a.top(), name)
