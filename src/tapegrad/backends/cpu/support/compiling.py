"""From a kernel's Python function to an object file, by numba."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config, funcdesc
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock

from tapegrad.backends.cpu.linking import ENTRY, linked, shared_names
from tapegrad.backends.cpu.support.arrays import (
    BYTE,
    INT,
    NUMBER,
    WORD,
    WORD_BYTES,
    FixedArray,
    data_pointers,
    expected_words,
    filled,
    number_place,
    placeholder,
    python_object,
)
from tapegrad.backends.cpu.support.regions import BODY, FAILED, run_region
from tapegrad.backends.cpu.support.shared import define_shared
from tapegrad.backends.cpu.support.syntax import tree_of
from tapegrad.backends.cpu.support.translation import TARGET, TYPING, Translator


class CodeLibrary(CPUCodeLibrary):
    """Code that is optimised once, and stays out of numba's own linker, which never frees any.

    numba optimises each function, then all of them a little, for its reference counts, and then in
    full. Here there are no counts, and the last finds as much without the others.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        # -O3 differs in how far it unrolls loops: it takes twice as long for small matrices.
        level = min(2, int(config.OPT))  # type: ignore[attr-defined]
        manager, builder = self._codegen._module_pass_manager(opt=level)
        manager.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def object_code(self) -> bytes:
        self.finalize()
        return bytes(self._codegen._tm.emit_object(self._final_module))


def kernel_type(passed: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """numba's type of a parameter that is passed as a "scalar", an "array", or a "chunk"."""
    element = types.boolean if np.dtype(dtype) == np.bool_ else getattr(types, np.dtype(dtype).name)
    return FixedArray(element, tuple(shape)) if passed == "array" else element


@global_compiler_lock
def object_code(function: Any, parameters: Any, numbers: Any = None) -> bytes:
    """The machine code of a kernel as an object file, whose entry takes exactly these types.

    If there are `numbers`, dtypes by their names, the kernel is a template, in which these are
    called `#0`, `#1`, ..., and how many entries arrays have along their first axis isn't said. Its
    file has to be `completed`.
    """
    kinds = tuple(kernel_type(*p) for p in parameters)
    target = TARGET
    TYPING.refresh()
    target.refresh()
    library = CodeLibrary(target.codegen(), function.__name__)
    described = funcdesc.ExternalFunctionDescriptor(function.__name__, types.int64, kinds)
    described.noalias = True  # no two arguments overlap; the caller sees to that
    with target.push_code_library(library):
        module = library.create_ir_module(function.__name__)
        emitted = target.declare_function(module, described)
        translator = Translator(function.__globals__, emitted)
        if numbers:
            placeholder(module, "numbers", len(numbers))
        for k, dtype in enumerate(numbers or ()):
            name, kind = f"{NUMBER}{k}", kernel_type("scalar", (), dtype)
            pointer = TARGET.get_value_type(kind).as_pointer()
            place = translator.builder.bitcast(number_place(translator.builder, name), pointer)
            translator.take(name, translator.builder.load(place), kind)
        translator.translate(tree_of(function), kinds)
        library.add_ir_module(module)
        chunked = any(passed == "chunk" for passed, _, _ in parameters)
        _add_entry(target, library, described, numbers is None, chunked)
    return library.object_code()


@global_compiler_lock
def shared_code(symbol: str) -> bytes:
    """The machine code of a function that kernels share, as an object file."""
    library = CodeLibrary(TARGET.codegen(), symbol)
    module = library.create_ir_module(symbol)
    define_shared(module, symbol)
    library.add_ir_module(module)
    return library.object_code()


def completed(code: bytes, numbers: Any, parameters: Any) -> bytes:
    """The machine code of a template with these numbers and types of its parameters."""
    arrays = [kind for p in parameters if isinstance(kind := kernel_type(*p), FixedArray)]
    words = [word for kind in arrays for word in expected_words(kind)]
    known = [x.tobytes().ljust(WORD_BYTES, b"\0") for x in numbers]
    code = filled(code, "numbers", known)
    return filled(
        code, "words", [x.to_bytes(WORD_BYTES, sys.byteorder, signed=True) for x in words]
    )


def _add_entry(
    target: Any, library: Any, kernel: Any, whole: bool = True, chunked: bool = False
) -> None:
    """What Python calls: takes the arguments out of their objects, and calls the kernel without
    the global lock. A function of CPython's fast calling convention.

    PyObject *entry(PyObject *self, PyObject *const *args, Py_ssize_t count)

    One that isn't `whole` is told later how many entries its arrays have. If it is `chunked`, the
    kernel's last argument is the number of a chunk; the entry's says how many there are.
    """
    module = target.create_module("entry")
    pointer = BYTE.as_pointer()
    kind = ir.FunctionType(pointer, [pointer, pointer.as_pointer(), WORD])
    builder = ir.IRBuilder(ir.Function(module, kind, ENTRY).append_basic_block())
    python = target.get_python_api(builder)
    _, args, count = builder.function.args
    null = ir.Constant(pointer, None)
    wanted = len(kernel.argtypes)
    values: list[Any] = [None] * wanted
    arrays = {k: kind for k, kind in enumerate(kernel.argtypes) if isinstance(kind, FixedArray)}
    found, fit = data_pointers(builder, args, count, wanted, arrays, whole)
    with builder.if_then(builder.not_(fit), likely=False):
        builder.ret(null)
    for number, (k, kind) in enumerate(arrays.items()):
        pointer = builder.load(builder.gep(found, [INT(number)]))
        values[k] = builder.bitcast(pointer, target.get_value_type(kind))
    for k, kind in enumerate(kernel.argtypes):
        if k in arrays:
            continue
        given = builder.load(builder.gep(args, [INT(k)]))
        if isinstance(kind, types.Complex):
            value, is_error = _complex_number(target, builder, python, kind, given)
        else:
            native = python.to_native_value(kind, given)
            value, is_error = native.value, native.is_error
        with builder.if_then(is_error, likely=False):
            builder.ret(null)
        values[k] = value
    convention = target.call_conv
    callee = ir.Function(
        module,
        convention.get_function_type(kernel.restype, kernel.argtypes),
        kernel.llvm_func_name,
    )
    state = python.save_thread()
    if chunked:
        status = _all_chunks(target, builder, callee, kernel, values)
        fails = builder.icmp_signed("==", status, WORD(FAILED))
    else:
        status, fails = _one_call(target, builder, callee, kernel, values)
    python.restore_thread(state)
    with builder.if_then(fails, likely=False):
        error = python_object(module, SystemError)
        python.err_set_string(error, "a kernel raised an exception")
        builder.ret(null)
    builder.ret(python.long_from_longlong(status))
    library.add_ir_module(module)


def _one_call(target: Any, builder: Any, callee: Any, kernel: Any, values: Any) -> tuple[Any, Any]:
    """What a kernel returns, and whether it raises an exception."""
    status, result = target.call_conv.call_function(
        builder, callee, kernel.restype, kernel.argtypes, values, attrs=("noinline",)
    )
    return result, status.is_error


def _all_chunks(target: Any, builder: Any, callee: Any, kernel: Any, values: Any) -> Any:
    """The highest of what a kernel returns for its chunks, of which the last value says how many
    there are; FAILED if it raises an exception."""
    *shared, chunks = values
    given = builder.alloca(BYTE.as_pointer(), INT(len(shared)))
    for k, value in enumerate(shared):
        if not isinstance(kernel.argtypes[k], FixedArray):
            place = builder.alloca(value.type)
            builder.store(value, place)
            value = place
        pointer = builder.bitcast(value, BYTE.as_pointer())
        builder.store(pointer, builder.gep(given, [INT(k)]))
    body = ir.Function(builder.module, BODY, "tapegrad_chunk")
    body.linkage = "internal"
    inside = ir.IRBuilder(body.append_basic_block())
    taken = []
    for k, value in enumerate(shared):
        pointer = inside.load(inside.gep(body.args[0], [INT(k)]))
        if isinstance(kernel.argtypes[k], FixedArray):
            taken.append(inside.bitcast(pointer, value.type))
        else:
            taken.append(inside.load(inside.bitcast(pointer, value.type.as_pointer())))
    status, fails = _one_call(target, inside, callee, kernel, [*taken, body.args[1]])
    inside.ret(inside.select(fails, WORD(FAILED), status))
    return builder.call(run_region(builder.module), [body, given, chunks])


def _complex_number(target: Any, builder: Any, python: Any, kind: Any, given: Any) -> Any:
    """The parts of one of Python's complex numbers, and whether it is none."""
    pointer, double = BYTE.as_pointer(), ir.DoubleType()
    made = target.make_complex(builder, kind)
    for name in ("real", "imag"):
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(double, [pointer]),
            f"PyComplex_{name.capitalize()}AsDouble",
        )
        part = builder.call(function, [builder.bitcast(given, pointer)])
        part = target.cast(builder, part, types.float64, kind.underlying_float)
        setattr(made, name, part)
    is_error = cgutils.is_not_null(builder, python.err_occurred())
    return made._getvalue(), is_error


def compiled(function: Any, parameters: Any) -> Any:
    """A kernel as machine code: a plain callable that takes exactly these types."""
    return linked_here(function.__name__, object_code(function, parameters))


def linked_here(name: str, code: bytes) -> Any:
    """A kernel from its object file, and from functions that are compiled now for it."""
    return linked(name, code, {symbol: shared_code(symbol) for symbol in shared_names(code)})
