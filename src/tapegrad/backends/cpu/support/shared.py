"""Functions that kernels share, each compiled once and by itself.

They depend on a few numbers and words, and not on the kernel that calls them. Their names contain
all of these, so a kernel that calls one can be linked with any copy of it:

    tapegrad_shared_blocks_d_8_16    # `blocks` of doubles, with 8 rows and 16 columns
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from tapegrad.backends.cpu.linking import SHARED

REALS = {"d": ir.DoubleType(), "s": ir.FloatType()}  # by BLAS's letters for them

_writers: dict[str, Callable[[Any, Sequence[Any]], None]] = {}


def letter_of(real: Any) -> str:
    """The letter of a type of floats."""
    return next(letter for letter, kind in REALS.items() if kind == real)


def shared_function(
    name: str, kind: Callable[..., Any]
) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """A decorator of a function `write(builder, args, *parameters)` that writes a function's body.
    Its type is `kind(*parameters)`. The arrays of numbers that are passed to it don't overlap.

    The decorated name, called with a module and parameters, returns the function as declared there.
    """

    def decorated(write: Callable[..., None]) -> Callable[..., Any]:
        def declared(module: Any, *parameters: Any) -> Any:
            symbol = "_".join([SHARED + name, *map(str, parameters)])
            if symbol not in module.globals:
                function = ir.Function(module, kind(*parameters), symbol)
                function.attributes.add("nounwind")
            return module.globals[symbol]

        def define(module: Any, parameters: Sequence[Any]) -> None:
            function = declared(module, *parameters)
            function.attributes.add("optsize")  # no padding
            for x in function.args:
                if x.type in [real.as_pointer() for real in REALS.values()]:
                    x.add_attribute("noalias")
            builder = ir.IRBuilder(function.append_basic_block())
            write(builder, function.args, *parameters)
            if not builder.block.is_terminated:
                builder.ret_void()

        _writers[name] = define
        return declared

    return decorated


def define_shared(module: Any, symbol: str) -> None:
    """Write the function of this name into a module."""
    name, *words = symbol.removeprefix(SHARED).split("_")
    _writers[name](module, [int(word) if word.isdigit() else word for word in words])
