"""From a kernel's Python function to an object file, by numba."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
from llvmlite.binding import create_new_module_pass_manager
from numba import types
from numba.core import config, funcdesc
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock

from tapegrad.backends.cpu.linking import linked, shared_names
from tapegrad.backends.cpu.support.arrays import (
    NUMBER,
    WORD_BYTES,
    FixedArray,
    filled,
    number_place,
    placeholder,
)
from tapegrad.backends.cpu.support.entry import add_entry, expected_words
from tapegrad.backends.cpu.support.lines import LineNumbers
from tapegrad.backends.cpu.support.operators import TARGET
from tapegrad.backends.cpu.support.shared import define_shared
from tapegrad.backends.cpu.support.syntax import tree_of
from tapegrad.backends.cpu.support.translation import Translator


class CodeLibrary(CPUCodeLibrary):
    """Code that is optimised once, and stays out of numba's own linker, which never frees code.

    numba optimises each function, then the module a little, for its reference counts, and then in
    full. Kernels have no reference counts, and the last step alone finds as much.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        # -O3 only unrolls loops further, and takes twice as long for small matrices.
        level = min(2, int(config.OPT))  # type: ignore[attr-defined]
        manager, builder = self._codegen._module_pass_manager(opt=level)
        manager.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def object_code(self) -> bytes:
        self.finalize()
        return bytes(self._codegen._tm.emit_object(self._final_module))


class SharedLibrary(CodeLibrary):
    """Code that was written instruction by instruction, with its vectors: a tenth of LLVM's passes
    are as good for it as all of them."""

    def _optimize_final_module(self) -> None:
        manager = create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.add_simplify_cfg_pass()
        manager.add_loop_rotate_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
        manager.run(self._final_module, self._codegen._pass_builder())


def kernel_type(passed: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """numba's type of a parameter that is passed as a "scalar", an "array", or a "chunk"."""
    element = types.boolean if np.dtype(dtype) == np.bool_ else getattr(types, np.dtype(dtype).name)
    return FixedArray(element, tuple(shape)) if passed == "array" else element


@functools.cache
def _load_functions() -> None:
    """Load numba's operators on numbers."""
    TARGET.refresh()


@global_compiler_lock
def object_code(
    function: Any, parameters: Any, numbers: Any = None, has_lines: bool = False
) -> bytes:
    """The machine code of a kernel as an object file, whose entry takes exactly these types. It has
    the numbers of its source's lines where that is asked for.

    With `numbers` (names of dtypes), the kernel is a template: its numbers are named `#0`, `#1`,
    ..., and the extents of arrays' first axes are open. The object file has to be `completed`.
    """
    kinds = tuple(kernel_type(*p) for p in parameters)
    target = TARGET
    _load_functions()
    library = CodeLibrary(target.codegen(), function.__name__)
    described = funcdesc.ExternalFunctionDescriptor(function.__name__, types.int64, kinds)
    described.noalias = True  # no two arguments overlap: the caller ensures it
    with target.push_code_library(library):
        module = library.create_ir_module(function.__name__)
        emitted = target.declare_function(module, described)
        lines = LineNumbers(module, function.__name__) if has_lines else None
        translator = Translator(function.__globals__, emitted, lines)
        if numbers:
            placeholder(module, "numbers", len(numbers))
        for k, dtype in enumerate(numbers or ()):
            name, kind = f"{NUMBER}{k}", kernel_type("scalar", (), dtype)
            pointer = TARGET.get_value_type(kind).as_pointer()
            place = translator.builder.bitcast(number_place(translator.builder, name), pointer)
            translator.take(name, translator.builder.load(place), kind)
        translator.translate(tree_of(function), kinds)
        chunked = any(passed == "chunk" for passed, _, _ in parameters)
        add_entry(module, emitted, described, numbers is None, chunked)
        library.add_ir_module(module)
    return library.object_code()


@global_compiler_lock
def shared_code(symbol: str) -> bytes:
    """The machine code of a shared function, as an object file."""
    library = SharedLibrary(TARGET.codegen(), symbol)
    module = library.create_ir_module(symbol)
    define_shared(module, symbol)
    library.add_ir_module(module)
    return library.object_code()


def completed(code: bytes, numbers: Any, parameters: Any) -> bytes:
    """The machine code of a template, with these numbers and types of its parameters."""
    words = [word for p in parameters for word in expected_words(kernel_type(*p))]
    known = [x.tobytes().ljust(WORD_BYTES, b"\0") for x in numbers]
    code = filled(code, "numbers", known)
    return filled(
        code, "words", [x.to_bytes(WORD_BYTES, sys.byteorder, signed=True) for x in words]
    )


def compiled(function: Any, parameters: Any) -> Any:
    """A kernel as machine code: a plain callable that takes exactly these types."""
    return linked_here(function.__name__, object_code(function, parameters))


def linked_here(name: str, code: bytes) -> Any:
    """A kernel from its object file, with the shared functions compiled in this process."""
    return linked(name, code, {symbol: shared_code(symbol) for symbol in shared_names(code)})
