"""Kernels to machine code, through numba's code generator, in this process."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tapegrad.backends.cpu import kernel_cache
from tapegrad.backends.cpu.kernel_cache import Types
from tapegrad.backends.cpu.templates import template
from tapegrad.backends.source.program import Program

# What compiles kernels: the function that gives one's machine code, and for each kernel its text's
# length. The result holds the machine code of each.
Build = Callable[[Callable[[Any], bytes], Mapping[Any, int]], dict[Any, bytes]]


def one_by_one(work: Callable[[Any], bytes], sizes: Mapping[Any, int]) -> dict[Any, bytes]:
    """The results of work that is done here, one piece after the other."""
    return {key: work(key) for key in sizes}


def machine_code(program: Program, build: Build | None = None) -> dict[str, bytes]:
    """The machine code of a program's kernels by name; `build` compiles those that are new."""
    from tapegrad.backends.cpu import support

    names = support.namespace()
    names.update({"nan": np.nan, "inf": np.inf, "empty": np.empty})
    names.update(program.constants)
    names["__name__"] = f"tapegrad.generated.{program.plan.name}"
    keys: dict[str, Any] = {}
    sizes: dict[Any, int] = {}
    wanted: dict[Any, tuple[Any, ...]] = {}
    completing: dict[str, Callable[[bytes], bytes]] = {}
    for kernel in program.kernels:
        types: Types = kernel.types()
        source: str | ast.Module = kernel.text
        numbers = None
        lifted = template(kernel, program.lengths, program.constants)
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
    codes = {key: code for key in wanted if (code := kernel_cache.kernels.get(key)) is not None}
    sizes = {key: size for key, size in sizes.items() if key not in codes}
    new = (build or one_by_one)(lambda key: support.object_code(*wanted[key]), sizes)
    kernel_cache.kernels.add(new)
    codes |= new
    return {name: completing.get(name, bytes)(codes[key]) for name, key in keys.items()}


def kernel_function(source: str | ast.Module, name: str, names: dict[str, Any]) -> Any:
    """The function of this name that a text or its tree defines, among the names that it uses. It
    carries its tree, for its compiler."""
    module = ast.parse(source) if isinstance(source, str) else source
    exec(compile(module, f"<tapegrad {name}>", "exec"), names)
    function = names[name]
    (function.tree,) = module.body
    return function
