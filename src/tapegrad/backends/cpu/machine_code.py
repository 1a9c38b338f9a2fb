"""Kernels to machine code, through numba's code generator, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tapegrad.backends.cpu import kernel_cache
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
    keys, wanted = {}, {}
    for kernel in program.kernels:
        types = [kernel.type_of(k) for k in range(len(kernel.parameters))]
        function = kernel_function(kernel.text, kernel.name, names)
        key = keys[kernel.name] = kernel_cache.identity(function, types, program.constants)
        wanted[key] = function, types
    codes = {key: code for key in wanted if (code := kernel_cache.kernels.get(key)) is not None}
    sizes = {key: len(function.text) for key, (function, _) in wanted.items() if key not in codes}
    new = (build or one_by_one)(lambda key: support.object_code(*wanted[key]), sizes)
    kernel_cache.kernels.add(new)
    codes |= new
    return {name: codes[key] for name, key in keys.items()}


def kernel_function(text: str, name: str, names: dict[str, Any]) -> Any:
    """The function of this name that a text defines, among the names that it uses. It carries its
    text, for its compiler."""
    exec(compile(text, f"<tapegrad {name}>", "exec"), names)
    function = names[name]
    function.text = text
    return function
