"""Loops of a kernel that are functions: large ones that occur more than once, and those that cores
share inside a round.

    for chunk in range(shared(16)):         given = [&u, &t]
        for i in ...: u[i] = t    -->       run_region(body, given, 16)

A shared loop is two functions. One takes its arrays, so that LLVM knows that they don't overlap;
the other, `body(given, chunk)`, takes their addresses out of a list and calls it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from tapegrad.backends.cpu.support.arrays import BYTE, INT, POINTER, WORD
from tapegrad.backends.cpu.support.operators import TARGET
from tapegrad.backends.cpu.support.outline import SMALL_LOOP, Outline, procedure, rounds, shape_of
from tapegrad.backends.cpu.support.regions import BODY, run_region
from tapegrad.backends.cpu.support.syntax import leaves_its_loop, nodes_of


class Loops:
    """The large loops of a kernel that occur more than once: functions that it calls."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.shapes = Counter(shape_of(nodes_of(x)) for x in nodes if isinstance(x, ast.For))
        self.known: dict[Any, tuple[ir.Function, list[Any]]] = {}

    def outline(self, loop: ast.For, where: Any) -> Outline | None:
        """The outline of a loop as a function. None if the loop stays in the kernel."""
        if rounds(loop) <= SMALL_LOOP:
            return None
        nodes = nodes_of(loop)
        if self.shapes[shape_of(nodes)] < 2 or any(map(leaves_its_loop, nodes)):
            return None
        outline = _outline(nodes, where)
        return outline if _are_apart(outline, where) else None

    def function(
        self, loop: ast.For, outline: Outline, where: Any
    ) -> tuple[ir.Function, list[Any]]:
        """The function of a loop, and the types of the variables that it changes."""
        if outline.key not in self.known:
            self.known[outline.key] = _function_of([loop], outline, where)
        return self.known[outline.key]


def _outline(nodes: Sequence[ast.AST], where: Any) -> Outline:
    variables = {name: kind for name, (_, kind) in (where.values | where.places).items()}
    return Outline(nodes, where.arrays, variables, where.total)


def _are_apart(outline: Outline, where: Any) -> bool:
    """Whether no two arrays of a loop overlap."""
    return all(array in where.apart for array, _ in outline.arrays)


def _function_of(
    body: Sequence[ast.stmt], outline: Outline, where: Any, index: str = ""
) -> tuple[ir.Function, list[Any]]:
    """A loop as a function of its arrays and variables, and the types of those that it changes. Or
    one round of it, as a function of its `index`, too."""
    module, pointer = where.builder.module, BYTE.as_pointer()
    read = [(name, (where.places | where.values)[name][1]) for name in outline.read]
    if index:
        read.append((index, types.int64))
    taken = [array.type for array, _ in outline.arrays]
    taken += [TARGET.get_value_type(kind) for _, kind in read]
    taken += [pointer] * len(outline.changed)
    name = module.get_unique_name(f"{where.builder.function.name}.loop")
    function = procedure(module, name, taken)
    args = iter(function.args)
    inner = type(where)(where.names, function, where.lines)
    inner.at(body[0])
    inner.total = where.total
    arrays = [next(args) for _ in outline.arrays]
    for view, (number, start) in outline.views.items():
        inner.arrays[view] = arrays[number], start, where.arrays[view][2]
    for name, kind in read:
        inner.take(name, next(args), kind)
    changed = dict(zip(outline.changed, args, strict=True))
    if _are_apart(outline, where):
        inner.apart.update(arrays)
        for argument in [*arrays, *changed.values()]:
            argument.add_attribute("noalias")
    for name, argument in changed.items():
        if name in where.places:
            kind = where.places[name][1]
            place = inner.place(name, kind)
            at = inner.builder.bitcast(argument, place.type)
            inner.builder.store(inner.builder.load(at), place)
    inner.body([*body])
    for name, argument in changed.items():
        place = inner.places[name][0]
        at = inner.builder.bitcast(argument, place.type)
        inner.builder.store(inner.builder.load(place), at)
    inner.builder.ret_void()
    inner.finish()
    return function, [inner.places[name][1] for name in changed]


# ---- loops that cores share


def run_shared(loop: ast.For, where: Any) -> None:
    """Run the rounds of a loop on all cores, and wait until they are done."""
    assert isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call)
    outline = _outline(nodes_of(loop), where)
    assert not outline.changed, "a chunk changes a variable of the round"
    function, _ = _function_of(loop.body, outline, where, loop.target.id)
    b = where.builder
    given = [b.gep(array, [WORD(start)], inbounds=True) for array, start in outline.arrays]
    given += [where.variable(name)[0] for name in outline.read]
    with b.goto_block(where.entry):
        listed = b.alloca(POINTER, max(1, len(given)))
        places = [None if x.type.is_pointer else b.alloca(x.type) for x in given]
    for k, (x, place) in enumerate(zip(given, places, strict=True)):
        if place is not None:
            b.store(x, place)
        address = b.bitcast(x if place is None else place, POINTER)
        b.store(address, b.gep(listed, [INT(k)]))
    body = _body_of(function, [place is not None for place in places])
    chunks = where.whole(loop.iter.args[0])
    b.call(run_region(b.module), [body, listed, chunks])


def _body_of(function: ir.Function, by_place: Sequence[bool]) -> ir.Function:
    """`long body(void **given, long chunk)`, which calls the function of a round. Numbers are
    given by their place."""
    module = function.parent
    body = ir.Function(module, BODY, f"{function.name}.body")
    body.linkage = "internal"
    listed, chunk = body.args
    b = ir.IRBuilder(body.append_basic_block())
    taken = []
    for k, (parameter, is_place) in enumerate(zip(function.args, by_place, strict=False)):
        address = b.load(b.gep(listed, [INT(k)]))
        kind = parameter.type
        at = b.bitcast(address, kind.as_pointer() if is_place else kind)
        taken.append(b.load(at) if is_place else at)
    b.call(function, [*taken, chunk])
    b.ret(WORD(0))
    return body
