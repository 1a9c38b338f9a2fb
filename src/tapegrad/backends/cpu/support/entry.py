"""Calls of kernels from Python: unpack the arguments, and run the kernel without the GIL.

The entry of an object file is two short functions for its kernel; the rest is the same for all
kernels, and shared:

    PyObject *entry(PyObject *self, PyObject *const *args, ssize_t count)
        return call(body, region, parameters, wanted, words, args, count)

    long body(void **given, long chunk)
        return kernel(given[0], *(double *)given[1], chunk)

`region` runs the body for all chunks; it is null for a kernel without chunks. The last argument of
a kernel with chunks is their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tapegrad.backends.cpu.layout import ALIGNED, ARRAY_FIELDS, DTYPE_FIELDS, SWAPPED
from tapegrad.backends.cpu.linking import ENTRY, OBJECTS
from tapegrad.backends.cpu.support.arrays import BYTE, INT, POINTER, WORD, FixedArray, placeholder
from tapegrad.backends.cpu.support.operators import TARGET
from tapegrad.backends.cpu.support.regions import BODY, FAILED, run_region
from tapegrad.backends.cpu.support.shared import shared_function

_ANY = -1  # a stride that doesn't matter: those that do are positive
_REAL = ir.DoubleType()
_LIST = POINTER.as_pointer()
# A parameter: its position; for an array the number of its dtype, its rank, and the position of its
# dimensions and strides in the words of all; for a number _NUMBER as its rank, and the way to
# unpack it from its object.
_PARAMETER = ir.LiteralStructType([INT, INT, INT, INT])
_NUMBER = -1
_TAKEN = (types.float64, types.int64, types.uint64, types.boolean, types.complex128)
_PLACE = 2  # words of a number's place
# PyObject *entry(PyObject *self, PyObject *const *args, ssize_t count)
_ENTRY = ir.FunctionType(POINTER, [POINTER, _LIST, WORD])


def add_entry(module: Any, function: Any, kernel: Any, whole: bool, chunked: bool) -> None:
    """Write the entry into the module of a kernel: the `function` that `kernel`, numba's
    descriptor, describes.

    Where the types aren't `whole`, the expected shapes and strides are filled in later.
    """
    arrays, numbers, words = [], [], 0
    for at, kind in enumerate(kernel.argtypes):
        if isinstance(kind, FixedArray):
            rank = len(kind.shape)
            arrays.append(ir.Constant(_PARAMETER, [at, _dtype(kind).num, rank, words]))
            words += 2 * rank
        else:
            how = _TAKEN.index(_taken_as(kind))
            numbers.append(ir.Constant(_PARAMETER, [at, how, _NUMBER, 0]))
    rows = [*arrays, *numbers]  # arrays come first: unpacking numbers runs Python code
    table = ir.Constant(ir.ArrayType(_PARAMETER, len(rows)), rows)
    parameters = cgutils.global_constant(module, "tapegrad_parameters", table)
    if whole:
        listed = [word for kind in kernel.argtypes for word in expected_words(kind)]
        constant = ir.Constant(ir.ArrayType(WORD, words), listed)
        expected = cgutils.global_constant(module, "tapegrad_words", constant)
    else:
        expected = placeholder(module, "words", words)
    region = run_region(module)
    entry = ir.Function(module, _ENTRY, ENTRY)
    body = _body(module, function, kernel, chunked)
    for made in (entry, body):  # they only call: LLVM needn't optimise them
        made.attributes.add("noinline")
        made.attributes.add("optnone")
    b = ir.IRBuilder(entry.append_basic_block())
    given = [
        body,
        region if chunked else ir.Constant(region.type, None),
        parameters.gep([INT(0), INT(0)]),
        WORD(len(rows)),
        expected.gep([INT(0), INT(0)]),
        *entry.args[1:],
    ]
    b.ret(b.call(_call(module), given))


def expected_words(kind: Any) -> list[int]:
    """The expected dimensions and strides of an array; nothing for a number."""
    return [*kind.shape, *_strides(kind)] if isinstance(kind, FixedArray) else []


def _dtype(kind: FixedArray) -> np.dtype:
    return np.dtype("bool" if kind.dtype == types.boolean else str(kind.dtype))


def _strides(kind: FixedArray) -> list[int]:
    """The strides, in bytes, of an array of this type."""
    free = 0 in kind.shape
    return [
        _ANY if free or n == 1 else stride * _dtype(kind).itemsize
        for n, stride in zip(kind.shape, kind.strides, strict=True)
    ]


def _taken_as(kind: Any) -> Any:
    """The type in which a number of type `kind` is unpacked: the largest of its kind."""
    letter = "b" if kind == types.boolean else np.dtype(str(kind)).kind
    return dict(zip("fiubc", _TAKEN, strict=True))[letter]


# ---- the body


def _body(module: Any, function: Any, kernel: Any, chunked: bool) -> Any:
    """The kernel as a function of its arguments' addresses and of a chunk. It returns FAILED if the
    kernel raises an exception."""
    body = ir.Function(module, BODY, "tapegrad_body")
    body.linkage = "internal"
    given, chunk = body.args
    b = ir.IRBuilder(body.append_basic_block())
    values = []
    for at, kind in enumerate(kernel.argtypes):
        if chunked and at == len(kernel.argtypes) - 1:
            values.append(chunk)
            continue
        pointer = b.load(b.gep(given, [INT(at)]))
        if isinstance(kind, FixedArray):
            values.append(b.bitcast(pointer, TARGET.get_value_type(kind)))
        else:
            values.append(_number(b, pointer, kind))
    status, result = TARGET.call_conv.call_function(
        b, function, kernel.restype, kernel.argtypes, values, attrs=("noinline",)
    )
    b.ret(b.select(status.is_error, WORD(FAILED), result))
    return body


def _number(b: Any, pointer: Any, kind: Any) -> Any:
    """The number at an address, in the kernel's type."""
    taken = _taken_as(kind)
    if taken is types.complex128:
        place = b.bitcast(pointer, _REAL.as_pointer())
        made: Any = TARGET.make_complex(b, kind)
        for k, name in enumerate(("real", "imag")):
            part = b.load(b.gep(place, [INT(k)]))
            setattr(made, name, TARGET.cast(b, part, types.float64, kind.underlying_float))
        return made._getvalue()
    real = taken is types.float64
    word = b.load(b.bitcast(pointer, (_REAL if real else WORD).as_pointer()))
    if taken is types.boolean:
        return b.icmp_signed("!=", word, WORD(0))
    return TARGET.cast(b, word, taken, kind)


# ---- the call


def _call_type() -> Any:
    """The type of `_call`.

    PyObject *call(body *body, region *region, const parameter *parameters, ssize_t wanted,
                   const ssize_t *words, PyObject *const *args, ssize_t count)
    """
    region = ir.FunctionType(WORD, [BODY.as_pointer(), _LIST, WORD]).as_pointer()
    table = _PARAMETER.as_pointer()
    kinds = [BODY.as_pointer(), region, table, WORD, WORD.as_pointer(), _LIST, WORD]
    return ir.FunctionType(POINTER, kinds)


@shared_function("call", _call_type)
def _call(b: Any, args: Any) -> None:
    """Unpack the arguments, if all fit, and run the body or the region. Returns its status as an
    integer.

    It raises a BufferError if an array doesn't fit, a TypeError if the number of arguments is
    wrong, or whatever a number's object raises.
    """
    body, region, parameters, wanted, words, args, count = args
    python = TARGET.get_python_api(b)
    others, misfit, raised = (b.append_basic_block() for _ in range(3))
    given = b.alloca(POINTER, wanted)
    places = b.alloca(WORD, b.mul(wanted, WORD(_PLACE)))

    def require(holds: Any, otherwise: Any) -> None:
        fits = b.append_basic_block()
        b.cbranch(holds, fits, otherwise)
        b.position_at_end(fits)

    require(b.icmp_signed("==", count, wanted), others)
    with cgutils.for_range(b, wanted) as loop:
        parameter = b.gep(parameters, [loop.index])
        at, what, rank, first = (b.load(b.gep(parameter, [INT(0), INT(k)])) for k in range(4))
        x = b.load(b.gep(args, [at]))
        target = b.gep(given, [at])
        with b.if_else(b.icmp_signed("==", rank, INT(_NUMBER))) as (number, array):
            with number:
                place = b.gep(places, [b.mul(at, INT(_PLACE))])
                b.store(b.bitcast(place, POINTER), target)
                _take_number(b, python, what, x, place)
                require(cgutils.is_null(b, python.err_occurred()), raised)
            with array:
                expected = b.gep(words, [first])
                _take_array(
                    b, x, what, rank, expected, target, lambda holds: require(holds, misfit)
                )
    state = python.save_thread()
    status = b.alloca(WORD)
    with b.if_else(cgutils.is_null(b, region)) as (alone, chunks):
        with alone:
            b.store(b.call(body, [given, WORD(0)]), status)
        with chunks:
            last = b.load(b.gep(given, [b.sub(wanted, WORD(1))]))
            number = b.load(b.bitcast(last, WORD.as_pointer()))
            b.store(b.call(region, [body, given, number]), status)
    python.restore_thread(state)
    found = b.load(status)
    with b.if_then(b.icmp_signed("==", found, WORD(FAILED)), likely=False):
        _complain(b, SystemError, b"a kernel raised an exception\0")
        b.branch(raised)
    b.ret(python.long_from_longlong(found))

    for block, error, said in (
        (others, TypeError, b"another number of arguments than the compiled one takes\0"),
        (misfit, BufferError, b"another array than the compiled one\0"),
    ):
        b.position_at_end(block)
        _complain(b, error, said)
        b.branch(raised)
    b.position_at_end(raised)
    b.ret(ir.Constant(POINTER, None))


def _take_number(b: Any, python: Any, how: Any, x: Any, place: Any) -> None:
    """Store a Python number. An exception that this raises stays set."""
    done = b.append_basic_block()
    last = b.append_basic_block()
    switch = b.switch(how, last)
    for k, kind in enumerate(_TAKEN):
        block = last if k == len(_TAKEN) - 1 else b.append_basic_block()
        if block is not last:
            switch.add_case(INT(k), block)
        b.position_at_end(block)
        if kind is types.complex128:
            parts = [_part_of_complex(b, name, x) for name in ("Real", "Imag")]
        else:
            value = python.to_native_value(kind, x).value
            parts = [b.zext(value, WORD) if kind is types.boolean else value]
        for at, value in enumerate(parts):
            b.store(value, b.bitcast(b.gep(place, [INT(at)]), value.type.as_pointer()))
        b.branch(done)
    b.position_at_end(done)


def _part_of_complex(b: Any, name: str, x: Any) -> Any:
    kind = ir.FunctionType(_REAL, [POINTER])
    function = cgutils.get_or_insert_function(b.module, kind, f"PyComplex_{name}AsDouble")
    return b.call(function, [x])


def _take_array(
    b: Any, x: Any, dtype: Any, rank: Any, expected: Any, target: Any, require: Any
) -> None:
    """Store the address of an array's elements, if it has this dtype and rank, and the expected
    dimensions and strides."""

    def read(base: Any, offset: int, kind: Any) -> Any:
        place = b.gep(base, [WORD(offset)])
        return b.load(b.bitcast(place, kind.as_pointer()))

    def item(array: Any, at: Any) -> Any:
        return b.load(b.gep(array, [at]))

    def equal(x: Any, y: Any) -> Any:
        return b.icmp_signed("==", x, y)

    at, of_dtype = ARRAY_FIELDS, DTYPE_FIELDS
    require(equal(read(x, at["type"], POINTER), _python_object(b.module, np.ndarray)))
    require(equal(read(x, at["ndim"], INT), rank))
    found = read(x, at["dtype"], POINTER)
    holds = equal(read(found, of_dtype["number"], INT), dtype)
    swapped = equal(read(found, of_dtype["byteorder"], BYTE), BYTE(ord(SWAPPED)))
    aligned = b.and_(read(x, at["flags"], INT), INT(ALIGNED))
    holds = b.and_(holds, b.not_(b.or_(swapped, equal(aligned, INT(0)))))
    require(holds)
    dims, strides = (
        b.bitcast(read(x, at[name], POINTER), WORD.as_pointer())
        for name in ("dimensions", "strides")
    )
    with cgutils.for_range(b, rank) as axis:
        stride = item(expected, b.add(rank, axis.index))
        same = b.or_(equal(item(strides, axis.index), stride), equal(stride, WORD(_ANY)))
        require(b.and_(equal(item(dims, axis.index), item(expected, axis.index)), same))
    b.store(read(x, at["data"], POINTER), target)


def _python_object(module: Any, x: Any) -> Any:
    """The address of one of the Python objects in `OBJECTS`."""
    name = f"tapegrad_{x.__name__}"
    assert OBJECTS[name] is x
    return module.globals.get(name) or ir.GlobalVariable(module, BYTE, name)


def _complain(b: Any, error: Any, said: bytes) -> None:
    """Raise one of the errors in `OBJECTS`."""
    kind = ir.FunctionType(ir.VoidType(), [POINTER, POINTER])
    function = cgutils.get_or_insert_function(b.module, kind, "PyErr_SetString")
    text = cgutils.global_constant(b.module, "tapegrad_said", cgutils.make_bytearray(said))
    b.call(function, [_python_object(b.module, error), b.bitcast(text, POINTER)])
