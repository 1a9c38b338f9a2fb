"""What kernels call, as numba's own front end takes it."""

from __future__ import annotations

import operator

from numba import types
from numba.core import cgutils
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import intrinsic, lower_builtin, lower_getattr_generic

from tapegrad.backends.cpu.support import arrays
from tapegrad.backends.cpu.support.arrays import WORD, FixedArray, Intrinsic, word

TAKE_LITERALS = ("row_part", "column_part")


def _entries(index):
    """The types of an index's entries: numbers, and slices, each of which is all of an axis."""
    entries = index if isinstance(index, types.BaseTuple) else [index]
    return [*entries]


@infer_global(operator.getitem)
class FixedArrayGetItem(AbstractTemplate):
    def generic(self, args, kws):
        array, index = args
        known = (types.Integer, types.SliceType)
        if not isinstance(array, FixedArray):
            return None
        entries = _entries(index)
        if not all(isinstance(e, known) for e in entries):
            return None
        axes = [a for a, e in enumerate(entries) if isinstance(e, types.SliceType)]
        axes += range(len(entries), len(array.shape))
        if not axes:
            return signature(array.dtype, array, index)
        shape, strides = (tuple([x[a] for a in axes]) for x in (array.shape, array.strides))
        return signature(FixedArray(array.dtype, shape, strides), array, index)


@infer_global(operator.setitem)
class FixedArraySetItem(AbstractTemplate):
    def generic(self, args, kws):
        array, index, _ = args
        if isinstance(array, FixedArray) and len(_entries(index)) == len(array.shape):
            return signature(types.none, array, index, array.dtype)
        return None


def _address(context, builder, kinds, array, index):
    kind, index_kind = kinds[0], kinds[1]
    if isinstance(index_kind, types.BaseTuple):
        kinds_of = index_kind
        parts = cgutils.unpack_tuple(builder, index, len(kinds_of))
        entries = list(zip(parts, kinds_of, strict=True))
    else:
        entries = [(index, index_kind)]
    offset = None
    for (entry, entry_kind), stride in zip(entries, kind.strides, strict=False):
        if isinstance(entry_kind, types.SliceType):
            continue
        entry = context.cast(builder, entry, entry_kind, types.int64)
        term = entry if stride == 1 else builder.mul(entry, word(builder, stride), flags=("nsw",))
        offset = term if offset is None else builder.add(offset, term, flags=("nsw",))
    return array if offset is None else builder.gep(array, [offset], inbounds=True)


@lower_builtin(operator.getitem, FixedArray, types.Any)
def _lower_getitem(context, builder, sig, args):
    place = _address(context, builder, sig.args, *args)
    if isinstance(sig.return_type, FixedArray):
        return place
    return context.unpack_value(builder, sig.args[0].dtype, place)


@lower_builtin(operator.setitem, FixedArray, types.Any, types.Any)
def _lower_setitem(context, builder, sig, args):
    array, index, value = args
    place = _address(context, builder, sig.args, array, index)
    context.pack_value(builder, sig.args[0].dtype, value, place)
    return context.get_dummy_value()


@infer_getattr
class FixedArrayAttributes(AttributeTemplate):
    key = FixedArray

    def resolve_T(self, array):
        return FixedArray(array.dtype, array.shape[::-1], array.strides[::-1])


@lower_getattr_generic(FixedArray)
def _lower_attribute(context, builder, kind, value, name: str):
    return value  # a transpose is the same pointer under another type


@intrinsic(prefer_literal=True)
def reshaped(typingctx, array, shape):
    kind = FixedArray(array.dtype, tuple(e.literal_value for e in shape))
    return signature(kind, array, shape), lambda context, builder, sig, args: args[0]


@intrinsic(prefer_literal=True)
def part(typingctx, array, start, shape):
    kind = FixedArray(array.dtype, tuple(e.literal_value for e in shape))

    def codegen(context, builder, sig, args):
        return builder.gep(args[0], [WORD(start.literal_value)], inbounds=True)

    return signature(kind, array, start, shape), codegen


@intrinsic(prefer_literal=True)
def panel(typingctx, array, start, along, shape):
    strides = arrays.ways(array.strides, [e.literal_value for e in along])
    kind = FixedArray(array.dtype, tuple(e.literal_value for e in shape), strides)

    def codegen(context, builder, sig, args):
        return _address(context, builder, sig.args, *args[:2])

    return signature(kind, array, start, along, shape), codegen


VIEWS = {arrays.reshaped: reshaped, arrays.part: part, arrays.panel: panel}


def declared(names):
    """These names, among which numba's front end finds its own intrinsics."""
    found = {}
    for name, x in names.items():
        if isinstance(x, Intrinsic):
            found[name] = intrinsic(prefer_literal=name in TAKE_LITERALS)(x.emit)
        else:
            found[name] = VIEWS.get(x, x) if callable(x) else x
    return found
