"""Kernels to machine code, through numba's code generator, in this process."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tapegrad.backends.cpu import kernel_cache
from tapegrad.backends.cpu.kernel_cache import Types
from tapegrad.backends.cpu.templates import template
from tapegrad.backends.memo import is_shared
from tapegrad.backends.source.driver import Executable
from tapegrad.backends.source.program import Program
from tapegrad.backends.target import Build, Numbers, one_by_one

SHARED = 1000  # letters of a kernel that compiles as long as a shared function


def machine_code(program: Program, build: Build = one_by_one, others: Numbers = ()) -> Executable:
    """A program with the machine code of its kernels; `build` compiles the missing ones. With
    `others`, the numbers of a program for other lengths, the kernels are made from templates."""
    from tapegrad.backends.cpu import support
    from tapegrad.backends.cpu.linking import shared_names

    keys: dict[str, Any] = {}
    sizes: dict[Any, int] = {}
    wanted: dict[Any, tuple[Any, ...]] = {}
    completing: dict[str, Callable[[bytes], bytes]] = {}
    for kernel, asked in zip(program.kernels, _asked(program, others), strict=True):
        function, types, numbers = asked.function, asked.types, asked.numbers
        completing[kernel.name] = asked.complete
        key = kernel_cache.identity(function, types, program.constants, numbers)
        keys[kernel.name] = key
        wanted[key] = function, types, numbers
        sizes[key] = len(kernel.text)
    codes = _known_or_built(build, lambda key: support.object_code(*wanted[key]), sizes)
    kernels = {name: completing[name](codes[key]) for name, key in keys.items()}
    names_of = {kernel_cache.shared_identity(x): x for c in codes.values() for x in shared_names(c)}
    found = _known_or_built(
        build, lambda key: support.shared_code(names_of[key]), dict.fromkeys(names_of, SHARED)
    )
    shared = {names_of[key]: code for key, code in found.items()}
    return Executable(program.driver(), kernels, shared, program.axes)


def with_lines(program: Program, names: Collection[str]) -> dict[str, bytes]:
    """The machine code of the kernels called so, compiled once more, with the numbers of their
    sources' lines."""
    from tapegrad.backends.cpu import support

    return {
        kernel.name: support.object_code(asked.function, asked.types, asked.numbers, True)
        for kernel, asked in zip(program.kernels, _asked(program, ()), strict=True)
        if kernel.name in names
    }


class _Asked(NamedTuple):
    """What is compiled for a kernel; and what makes the kernel's code of it, where it is of a
    template."""

    function: Any
    types: Types
    numbers: Sequence[str] | None
    complete: Callable[[bytes], bytes]


def _asked(program: Program, others: Numbers) -> Iterator[_Asked]:
    """What is compiled for each kernel."""
    from tapegrad.backends.cpu import support

    names = support.namespace()
    names.update({"nan": np.nan, "inf": np.inf, "empty": np.empty})
    names.update(program.constants)
    names["__name__"] = f"tapegrad.generated.{program.plan.name}"
    for k, kernel in enumerate(program.kernels):
        types: Types = kernel.types()
        source: str | ast.Module = kernel.text
        numbers = None
        complete: Callable[[bytes], bytes] = bytes
        other = others[k] if others else None
        lifted = template(kernel, program.lengths, program.constants, other)
        if lifted is not None:
            source, numbers = lifted.module, lifted.kinds
            complete = partial(support.completed, numbers=lifted.numbers, parameters=types)
            types = lifted.types
        yield _Asked(kernel_function(source, kernel.name, names), types, numbers, complete)


def _known_or_built(
    build: Build, work: Callable[[Any], bytes], sizes: Mapping[Any, int]
) -> dict[Any, bytes]:
    """The machine code of each key of `sizes`, from the memo, or else made by `work`."""
    memo = kernel_cache.kernels
    codes = {key: code for key in sizes if (code := memo.get(key)) is not None}
    new = build(work, {key: size for key, size in sizes.items() if key not in codes})
    memo.compiles += sum(memo.get(key) is None for key in new if not is_shared(key))
    memo.add(new)
    return codes | new


def kernel_function(source: str | ast.Module, name: str, names: dict[str, Any]) -> Any:
    """The function `name` that a source or its tree defines, with `names` as globals. Its attribute
    `tree` is the syntax tree, for the compiler."""
    module = ast.parse(source) if isinstance(source, str) else source
    exec(compile(module, f"<tapegrad {name}>", "exec"), names)
    function = names[name]
    (function.tree,) = module.body
    return function
