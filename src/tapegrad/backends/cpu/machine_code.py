"""Kernels to machine code, through numba's code generator, in this process."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tapegrad.backends.cpu import kernel_cache
from tapegrad.backends.cpu.kernel_cache import Types
from tapegrad.backends.cpu.templates import Numbers, template
from tapegrad.backends.source.program import Program

# What compiles kernels: the function that gives one's machine code, and for each kernel its text's
# length. The result holds the machine code of each.
Build = Callable[[Callable[[Any], bytes], Mapping[Any, int]], dict[Any, bytes]]
SHARED = 1000  # letters of a kernel that takes as long to compile as a function that is shared


def one_by_one(work: Callable[[Any], bytes], sizes: Mapping[Any, int]) -> dict[Any, bytes]:
    """The results of work that is done here, one piece after the other."""
    return {key: work(key) for key in sizes}


class MachineCode(NamedTuple):
    """The object files of a program's kernels, and of the functions that they share, by name."""

    kernels: dict[str, bytes]
    shared: dict[str, bytes]


def machine_code(program: Program, build: Build | None = None, others: Numbers = ()) -> MachineCode:
    """The machine code of a program; `build` compiles what isn't known of it. Its kernels are
    templates where a program for other lengths has `others` in the place of its numbers."""
    from tapegrad.backends.cpu import support
    from tapegrad.backends.cpu.linking import shared_names

    names = support.namespace()
    names.update({"nan": np.nan, "inf": np.inf, "empty": np.empty})
    names.update(program.constants)
    names["__name__"] = f"tapegrad.generated.{program.plan.name}"
    keys: dict[str, Any] = {}
    sizes: dict[Any, int] = {}
    wanted: dict[Any, tuple[Any, ...]] = {}
    completing: dict[str, Callable[[bytes], bytes]] = {}
    for k, kernel in enumerate(program.kernels):
        types: Types = kernel.types()
        source: str | ast.Module = kernel.text
        numbers = None
        other = others[k] if others else None
        lifted = template(kernel, program.lengths, program.constants, other)
        if lifted is not None:
            source, numbers = lifted.module, lifted.kinds
            completing[kernel.name] = partial(
                support.completed, numbers=lifted.numbers, parameters=types
            )
            types = lifted.types
        function = kernel_function(source, kernel.name, names)
        key = kernel_cache.identity(function, types, program.constants, numbers)
        keys[kernel.name] = key
        wanted[key] = function, types, numbers
        sizes[key] = len(kernel.text)
    build = build or one_by_one
    codes = _known_or_built(build, lambda key: support.object_code(*wanted[key]), sizes)
    kernels = {name: completing.get(name, bytes)(codes[key]) for name, key in keys.items()}
    names_of = {kernel_cache.shared_identity(x): x for c in codes.values() for x in shared_names(c)}
    found = _known_or_built(
        build, lambda key: support.shared_code(names_of[key]), dict.fromkeys(names_of, SHARED)
    )
    return MachineCode(kernels, {names_of[key]: code for key, code in found.items()})


def _known_or_built(
    build: Build, work: Callable[[Any], bytes], sizes: Mapping[Any, int]
) -> dict[Any, bytes]:
    """The machine code of each that has a size, from the memo, or else as `work` makes it."""
    memo = kernel_cache.kernels
    codes = {key: code for key in sizes if (code := memo.get(key)) is not None}
    new = build(work, {key: size for key, size in sizes.items() if key not in codes})
    memo.compiles += sum(memo.get(key) is None for key in new if not kernel_cache.is_shared(key))
    memo.add(new)
    return codes | new


def kernel_function(source: str | ast.Module, name: str, names: dict[str, Any]) -> Any:
    """The function of this name that a text or its tree defines, among the names that it uses. It
    carries its tree, for its compiler."""
    module = ast.parse(source) if isinstance(source, str) else source
    exec(compile(module, f"<tapegrad {name}>", "exec"), names)
    function = names[name]
    (function.tree,) = module.body
    return function
