"""A first program, whose compilation loads everything that compiling needs."""

from __future__ import annotations

from tapegrad.backends.target import one_by_one
from tapegrad.compiler.templates import with_templates
from tapegrad.core.late import COMPILER, load
from tapegrad.pipeline import compile

# The first program to compile: a loop, a sum, a choice, a guard on all elements, and a product in
# panels that is long enough for several cores. It uses the functions that most products, their
# guards and chunks of loops share.
FIRST = """tape first(x, y)
  inp   %1 : f8[4000,8]
  inp   %2 : f8[52,8]
        %3 = exp(%1) : f8[4000,8]
        %4 = einsum(%3, %2, subscripts='ij,kj->ik') : f8[4000,52]
        %5 = less(%4, 1.0) : b1[4000,52]
        %6 = where(%5, %4, 0.0) : f8[4000,52]
        %7 = div(%6, 2.0) : f8[4000,52]
        %8 = sum(%7, axes=(0, 1)) : f8[]
        %9 = moderate(%4, 1024.0) : b1[4000,52]
        %10 = all(%9, axes=(0, 1)) : b1[]
  guard %10 = True
  out   %8, %7
"""


def compile_first() -> None:
    """Compile a small program, which loads modules, fills numba's registries and starts LLVM. The
    functions that it shares with others are taken from disk if they are there."""
    from tapegrad.ir.text import parse

    load(COMPILER)
    compile(parse(FIRST), with_templates(one_by_one))
