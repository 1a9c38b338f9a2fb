"""Compiling in this process: a tape's kernels, through numba's code generator, to machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.compiler import alike
from tapegrad.late import COMPILER, load

if TYPE_CHECKING:
    from tapegrad.emit.program import Program

# What compiles kernels: the function that gives one's machine code, and for each kernel its text's
# length. The result holds the machine code of each.
Build = Callable[[Callable[[Any], bytes], Mapping[Any, int]], dict[Any, bytes]]

# What is compiled before all else: a loop, a sum, a choice, a product, a guard.
FIRST = """tape first(x, y)
  inp   %1 : f8[40,8]
  inp   %2 : f8[8,40]
        %3 = exp(%1) : f8[40,8]
        %4 = matmul(%3, %2) : f8[40,40]
        %5 = less(%4, 1.0) : b1[40,40]
        %6 = where(%5, %4, 0.0) : f8[40,40]
        %7 = div(%6, 2.0) : f8[40,40]
        %8 = sum(%7, axes=(0, 1)) : f8[]
        %9 = less(%8, 0.0) : b1[]
  guard %9 = False
  out   %8, %7
"""


def one_by_one(work: Callable[[Any], bytes], sizes: Mapping[Any, int]) -> dict[Any, bytes]:
    """The results of work that is done here, one piece after the other."""
    return {key: work(key) for key in sizes}


def compile_first() -> None:
    """Compile a small program: that loads modules, fills numba's registries, and starts LLVM."""
    from tapegrad.ir.text import parse
    from tapegrad.pipeline import compile

    load(COMPILER)
    compile(parse(FIRST))


def machine_code(program: Program, build: Build | None = None) -> dict[str, bytes]:
    """The machine code of a program's kernels by name; `build` compiles those that are new."""
    from tapegrad.emit import support

    names = support.namespace()
    names.update({"nan": np.nan, "inf": np.inf, "empty": np.empty})
    names.update(program.constants)
    names["__name__"] = f"tapegrad.generated.{program.plan.name}"
    keys, wanted = {}, {}
    for kernel in program.kernels:
        types = [kernel.type_of(k) for k in range(len(kernel.parameters))]
        function = kernel_function(kernel.text, kernel.name, names)
        key = keys[kernel.name] = alike.identity(function, types, program.constants)
        wanted[key] = function, types
    codes = {key: code for key in wanted if (code := alike.kernels.get(key)) is not None}
    sizes = {key: len(function.text) for key, (function, _) in wanted.items() if key not in codes}
    new = (build or one_by_one)(lambda key: support.object_code(*wanted[key]), sizes)
    alike.kernels.add(new)
    codes |= new
    return {name: codes[key] for name, key in keys.items()}


def kernel_function(text: str, name: str, names: dict[str, Any]) -> Any:
    """The function of this name that a text defines, among the names that it uses. It carries its
    text, for its compiler."""
    exec(compile(text, f"<tapegrad {name}>", "exec"), names)
    function = names[name]
    function.text = text
    return function
