"""Simplification: each rewrite on a tiny tape, before and after, and the same bits from both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.tapes import assert_same_values, tape

from tapegrad.ir.tape import Source, Tape
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.simplify import simplify

# what is rewritten: inputs, calls before, calls after
REWRITES = {
    # ---- arithmetic
    "x + -0.0": ("f8[3]", "%2 = add(%1, -0.0) : f8[3]\nout %2", "out %1"),
    "-0.0 + x": ("f8[3]", "%2 = add(-0.0, %1) : f8[3]\nout %2", "out %1"),
    "integers: x + 0": ("i8[3]", "%2 = add(%1, 0) : i8[3]\nout %2", "out %1"),
    "x + -y": (
        "f8[3] f8[3]",
        "%3 = neg(%2) : f8[3]\n%4 = add(%1, %3) : f8[3]\nout %4",
        "%3 = sub(%1, %2) : f8[3]\nout %3",
    ),
    "-x + y": (
        "i4[3] i4[3]",
        "%3 = neg(%1) : i4[3]\n%4 = add(%3, %2) : i4[3]\nout %4",
        "%3 = sub(%2, %1) : i4[3]\nout %3",
    ),
    "reshape(x) + reshape(y)": (
        "f8[6] f8[6]",
        "%3 = reshape(%1, shape=(2, 3)) : f8[2,3]\n%4 = reshape(%2, shape=(2, 3)) : f8[2,3]\n"
        "%5 = add(%3, %4) : f8[2,3]\nout %5",
        "%3 = add(%1, %2) : f8[6]\n%4 = reshape(%3, shape=(2, 3)) : f8[2,3]\nout %4",
    ),
    "place(x) + place(y)": (
        "f8[2] f8[2]",
        "%3 = place(%1, shape=(4,), index=(Slice(1, 2, 1),)) : f8[4]\n"
        "%4 = place(%2, shape=(4,), index=(Slice(1, 2, 1),)) : f8[4]\n"
        "%5 = add(%3, %4) : f8[4]\nout %5",
        "%3 = add(%1, %2) : f8[2]\n"
        "%4 = place(%3, shape=(4,), index=(Slice(1, 2, 1),)) : f8[4]\nout %4",
    ),
    "stack(x[a], x[b])[c]": (
        "f8[8]",
        "%2 = getitem(%1, index=(Slice(0, 6),)) : f8[6]\n"
        "%3 = getitem(%1, index=(Slice(2, 6),)) : f8[6]\n"
        "%4 = stack(%2, %3, axis=1) : f8[6,2]\n"
        "%5 = getitem(%4, index=(Slice(1, 2, 3), Slice(0, 2))) : f8[2,2]\nout %5",
        "%2 = getitem(%1, index=(Slice(1, 2, 3),)) : f8[2]\n"
        "%3 = getitem(%1, index=(Slice(3, 2, 3),)) : f8[2]\n"
        "%4 = stack(%2, %3, axis=1) : f8[2,2]\nout %4",
    ),
    "stack(x[a], x[b])[k, ::-1], whose own axis stays turned": (
        "f8[8,3]",
        "%2 = getitem(%1, index=(Slice(0, 6), Slice(0, 3))) : f8[6,3]\n"
        "%3 = getitem(%1, index=(Slice(2, 6), Slice(0, 3))) : f8[6,3]\n"
        "%4 = stack(%2, %3, axis=1) : f8[6,2,3]\n"
        "%5 = getitem(%4, index=(4, Slice(1, 2, -1), 0)) : f8[2]\nout %5",
        "%2 = getitem(%1, index=(4, 0)) : f8[]\n%3 = getitem(%1, index=(6, 0)) : f8[]\n"
        "%4 = stack(%2, %3, axis=0) : f8[2]\n"
        "%5 = getitem(%4, index=(Slice(1, 2, -1),)) : f8[2]\nout %5",
    ),
    "place(x) of all elements, the other way round": (
        "f8[3]",
        "%2 = place(%1, shape=(3,), index=(Slice(2, 3, -1),)) : f8[3]\nout %2",
        "%2 = getitem(%1, index=(Slice(2, 3, -1),)) : f8[3]\nout %2",
    ),
    "transpose(reshape(exp(x)))": (
        "f8[2,3,4]",
        "%2 = exp(%1) : f8[2,3,4]\n%3 = reshape(%2, shape=(6, 4)) : f8[6,4]\n"
        "%4 = transpose(%3, axes=(1, 0)) : f8[4,6]\nout %4",
        "%2 = exp(%1) : f8[2,3,4]\n%3 = transpose(%2, axes=(2, 0, 1)) : f8[4,2,3]\n"
        "%4 = reshape(%3, shape=(4, 6)) : f8[4,6]\nout %4",
    ),
    "x - 0.0": ("f8[3]", "%2 = sub(%1, 0.0) : f8[3]\nout %2", "out %1"),
    "x - -y": (
        "f8[3] f8[3]",
        "%3 = neg(%2) : f8[3]\n%4 = sub(%1, %3) : f8[3]\nout %4",
        "%3 = add(%1, %2) : f8[3]\nout %3",
    ),
    "1 * x": ("f8[3]", "%2 = mul(1.0, %1) : f8[3]\nout %2", "out %1"),
    "integers: x * 1": ("u1[3]", "%2 = mul(%1, u1(1)) : u1[3]\nout %2", "out %1"),
    "True and x": ("b1[3]", "%2 = mul(True, %1) : b1[3]\nout %2", "out %1"),
    "-1 * x": ("f4[3]", "%2 = mul(f4(-1.0), %1) : f4[3]\nout %2", "%2 = neg(%1) : f4[3]\nout %2"),
    "-x * -y": (
        "f8[3] f8[3]",
        "%3 = neg(%1) : f8[3]\n%4 = neg(%2) : f8[3]\n%5 = mul(%3, %4) : f8[3]\nout %5",
        "%3 = mul(%1, %2) : f8[3]\nout %3",
    ),
    "-x * y": (
        "f8[3] f8[3]",
        "%3 = neg(%1) : f8[3]\n%4 = mul(%2, %3) : f8[3]\n%5 = neg(%4) : f8[3]\nout %5",
        "%3 = mul(%2, %1) : f8[3]\nout %3",
    ),
    "x / -y": (
        "f8[3] f8[3]",
        "%3 = neg(%2) : f8[3]\n%4 = div(%1, %3) : f8[3]\n%5 = sub(%2, %4) : f8[3]\nout %5",
        "%3 = div(%1, %2) : f8[3]\n%4 = add(%2, %3) : f8[3]\nout %4",
    ),
    "-x * c": (
        "f8[3]",
        "%2 = neg(%1) : f8[3]\n%3 = mul(3.0, %2) : f8[3]\nout %3",
        "%2 = mul(%1, -3.0) : f8[3]\nout %2",
    ),
    "x * x": ("f8[3]", "%2 = mul(%1, %1) : f8[3]\nout %2", "%2 = square(%1) : f8[3]\nout %2"),
    "(x * 2) * c": (
        "f8[3]",
        "%2 = mul(%1, 2.0) : f8[3]\n%3 = mul(-1.3, %2) : f8[3]\nout %3",
        "%2 = mul(%1, -2.6) : f8[3]\nout %2",
    ),
    "x / 1": ("f8[3]", "%2 = div(%1, 1.0) : f8[3]\nout %2", "out %1"),
    "-(-x)": ("f8[3]", "%2 = neg(%1) : f8[3]\n%3 = neg(%2) : f8[3]\nout %3", "out %1"),
    "-(x * c)": (
        "f8[3]",
        "%2 = mul(3.0, %1) : f8[3]\n%3 = neg(%2) : f8[3]\nout %3",
        "%2 = mul(%1, -3.0) : f8[3]\nout %2",
    ),
    "x ** 2": ("f8[3]", "%2 = power(%1, 2.0) : f8[3]\nout %2", "%2 = square(%1) : f8[3]\nout %2"),
    "x ** 0.5": (
        "f8[3]",
        "%2 = power_of_all(%1, 0.5) : f8[3]\nout %2",
        "%2 = sqrt(%1) : f8[3]\nout %2",
    ),
    "x ** 0.5 of a number": (
        "f8[]",
        "%2 = power(%1, 0.5) : f8[]\nout %2",
        "%2 = root(%1) : f8[]\nout %2",
    ),
    "x ** 1": ("f8[3]", "%2 = power(%1, 1.0) : f8[3]\nout %2", "out %1"),
    "literals": (
        "f8[3]",
        "%2 = mul(2.0, 0.5) : f8[]\n%3 = mul(%1, %2) : f8[3]\nout %3",
        "out %1",
    ),
    "sums of equal whole numbers": (
        "f8[3]",
        "%2 = broadcast_to(-0.0, shape=(2, 4)) : f8[2,4]\n"
        "%3 = broadcast_to(3.0, shape=(2, 4)) : f8[2,4]\n"
        "%4 = sum(%2, axes=(0,)) : f8[4]\n%5 = sum(%3, axes=(0, 1)) : f8[]\nout %4, %5",
        "%2 = broadcast_to(0.0, shape=(4,)) : f8[4]\nout %2, 24.0",
    ),
    "sums of equal numbers are rounded": (
        "f4[3]",
        "%2 = broadcast_to(0.1, shape=(7,)) : f8[7]\n%3 = sum(%2, axes=(0,)) : f8[]\nout %3",
        "%2 = broadcast_to(0.1, shape=(7,)) : f8[7]\n%3 = sum(%2, axes=(0,)) : f8[]\nout %3",
    ),
    # ---- choices, casts and copies
    "x and False, x and True": (
        "b1[3]",
        "%2 = logical_and(%1, False) : b1[3]\n%3 = logical_and(True, %1) : b1[3]\nout %2, %3",
        "%2 = broadcast_to(False, shape=(3,)) : b1[3]\nout %2, %1",
    ),
    "x or False, x or True": (
        "b1[3]",
        "%2 = logical_or(False, %1) : b1[3]\n%3 = logical_or(%1, True) : b1[3]\nout %2, %3",
        "%2 = broadcast_to(True, shape=(3,)) : b1[3]\nout %1, %2",
    ),
    "where(True, x, y)": ("f8[3]", "%2 = where(True, %1, 0.0) : f8[3]\nout %2", "out %1"),
    "where(False, c, x)": ("f8[3]", "%2 = where(False, 0.0, %1) : f8[3]\nout %2", "out %1"),
    "where(c, x, x)": ("b1[3] f8[3]", "%3 = where(%1, %2, %2) : f8[3]\nout %3", "out %2"),
    "where(c, x, x), wider": (
        "b1[2,3] f8[3]",
        "%3 = where(%1, %2, %2) : f8[2,3]\nout %3",
        "%3 = broadcast_to(%2, shape=(2, 3)) : f8[2,3]\nout %3",
    ),
    "where(c, where(c, x, y), z)": (
        "b1[3] f8[3]",
        "%3 = where(%1, %2, 7.0) : f8[3]\n%4 = where(%1, %3, 8.0) : f8[3]\nout %4",
        "%3 = where(%1, %2, 8.0) : f8[3]\nout %3",
    ),
    "where(c, x, where(c, y, z))": (
        "b1[3] f8[3]",
        "%3 = where(%1, 7.0, %2) : f8[3]\n%4 = where(%1, 8.0, %3) : f8[3]\nout %4",
        "%3 = where(%1, 8.0, %2) : f8[3]\nout %3",
    ),
    "copy(x)": ("f8[3]", "%2 = copy(%1) : f8[3]\nout %2", "out %1"),
    "astype to the same": ("f4[3]", "%2 = astype(%1, dtype=f4) : f4[3]\nout %2", "out %1"),
    # ---- broadcasting
    "a repeated number times x": (
        "f8[3]",
        "%2 = broadcast_to(0.14, shape=(3,)) : f8[3]\n%3 = mul(%2, %1) : f8[3]\nout %3",
        "%2 = mul(0.14, %1) : f8[3]\nout %2",
    ),
    "expand_dims(c) * x": (
        "f8[2,3]",
        "%2 = expand_dims(0.14, axes=(0, 1)) : f8[1,1]\n%3 = mul(%2, %1) : f8[2,3]\nout %3",
        "%2 = mul(0.14, %1) : f8[2,3]\nout %2",
    ),
    "reshape, squeeze and transpose of a number": (
        "f8[2,3]",
        """
        %2 = reshape(2.0, shape=(1, 1, 1)) : f8[1,1,1]
        %3 = transpose(%2, axes=(2, 0, 1)) : f8[1,1,1]
        %4 = squeeze(%3, axes=(0,)) : f8[1,1]
        %5 = broadcast_to(%4, shape=(2, 3)) : f8[2,3]
        %6 = add(%1, %5) : f8[2,3]
        out %6
        """,
        "%2 = add(%1, 2.0) : f8[2,3]\nout %2",
    ),
    "an element of a repeated number": (
        "f8[]",
        """
        %2 = broadcast_to(%1, shape=(4, 3)) : f8[4,3]
        %3 = getitem(%2, index=(2, Slice(1, 2))) : f8[2]
        %4 = getitem(%2, index=(2, 1)) : f8[]
        out %3, %4
        """,
        "%2 = broadcast_to(%1, shape=(2,)) : f8[2]\nout %2, %1",
    ),
    "a row repeated, with a matrix": (
        "f8[3] f8[2,3]",
        "%3 = broadcast_to(%1, shape=(2, 3)) : f8[2,3]\n%4 = sub(%2, %3) : f8[2,3]\nout %4",
        "%3 = sub(%2, %1) : f8[2,3]\nout %3",
    ),
    "new axes in front come by themselves": (
        "f8[3] f8[2,3]",
        "%3 = expand_dims(%1, axes=(0,)) : f8[1,3]\n%4 = sub(%2, %3) : f8[2,3]\nout %4",
        "%3 = sub(%2, %1) : f8[2,3]\nout %3",
    ),
    "a row and a column, repeated": (
        "f8[3] f8[2,1]",
        """
        %3 = broadcast_to(%1, shape=(2, 3)) : f8[2,3]
        %4 = broadcast_to(%2, shape=(2, 3)) : f8[2,3]
        %5 = add(%3, %4) : f8[2,3]
        out %5
        """,
        "%3 = add(%1, %2) : f8[2,3]\nout %3",
    ),
    "what is repeated is computed once": (
        "f8[3] f8[]",
        """
        %3 = broadcast_to(%1, shape=(2, 3)) : f8[2,3]
        %4 = broadcast_to(%2, shape=(2, 3)) : f8[2,3]
        %5 = mul(%3, %4) : f8[2,3]
        %6 = exp(%5) : f8[2,3]
        out %6
        """,
        """
        %3 = mul(%1, %2) : f8[3]
        %4 = exp(%3) : f8[3]
        %5 = broadcast_to(%4, shape=(2, 3)) : f8[2,3]
        out %5
        """,
    ),
    "broadcast twice": (
        "f8[1]",
        "%2 = broadcast_to(%1, shape=(3,)) : f8[3]\n"
        "%3 = broadcast_to(%2, shape=(2, 3)) : f8[2,3]\nout %3",
        "%2 = broadcast_to(%1, shape=(2, 3)) : f8[2,3]\nout %2",
    ),
    "broadcast after expand_dims": (
        "f8[3]",
        "%2 = expand_dims(%1, axes=(0,)) : f8[1,3]\n"
        "%3 = broadcast_to(%2, shape=(2, 3)) : f8[2,3]\nout %3",
        "%2 = broadcast_to(%1, shape=(2, 3)) : f8[2,3]\nout %2",
    ),
    "broadcast that repeats nothing": (
        "f8[3]",
        "%2 = broadcast_to(%1, shape=(1, 3)) : f8[1,3]\nout %2",
        "%2 = expand_dims(%1, axes=(0,)) : f8[1,3]\nout %2",
    ),
    "broadcast to the same": (
        "f8[3]",
        "%2 = broadcast_to(%1, shape=(3,)) : f8[3]\nout %2",
        "out %1",
    ),
    # ---- axes
    "transpose that does nothing": (
        "f8[2,3]",
        "%2 = transpose(%1, axes=(0, 1)) : f8[2,3]\nout %2",
        "out %1",
    ),
    "transpose and back": (
        "f8[2,3]",
        "%2 = transpose(%1, axes=(1, 0)) : f8[3,2]\n"
        "%3 = transpose(%2, axes=(1, 0)) : f8[2,3]\nout %3",
        "out %1",
    ),
    "transpose twice": (
        "f8[2,3,4]",
        "%2 = transpose(%1, axes=(1, 2, 0)) : f8[3,4,2]\n"
        "%3 = transpose(%2, axes=(0, 2, 1)) : f8[3,2,4]\nout %3",
        "%2 = transpose(%1, axes=(1, 0, 2)) : f8[3,2,4]\nout %2",
    ),
    "a row made a column": (
        "f8[3]",
        "%2 = expand_dims(%1, axes=(0,)) : f8[1,3]\n"
        "%3 = transpose(%2, axes=(1, 0)) : f8[3,1]\nout %3",
        "%2 = expand_dims(%1, axes=(1,)) : f8[3,1]\nout %2",
    ),
    "transpose of unit axes": (
        "f8[1,1]",
        "%2 = transpose(%1, axes=(1, 0)) : f8[1,1]\nout %2",
        "out %1",
    ),
    "reshape to the same": ("f8[3]", "%2 = reshape(%1, shape=(3,)) : f8[3]\nout %2", "out %1"),
    "reshape twice": (
        "f8[6]",
        "%2 = reshape(%1, shape=(2, 3)) : f8[2,3]\n"
        "%3 = reshape(%2, shape=(3, 2)) : f8[3,2]\nout %3",
        "%2 = reshape(%1, shape=(3, 2)) : f8[3,2]\nout %2",
    ),
    "reshape and back": (
        "f8[6]",
        "%2 = reshape(%1, shape=(2, 3)) : f8[2,3]\n%3 = reshape(%2, shape=(6,)) : f8[6]\nout %3",
        "out %1",
    ),
    "reshape that adds an axis": (
        "f8[1,3]",
        "%2 = reshape(%1, shape=(1, 3, 1)) : f8[1,3,1]\nout %2",
        "%2 = expand_dims(%1, axes=(2,)) : f8[1,3,1]\nout %2",
    ),
    "reshape that drops an axis": (
        "f8[2,1,3]",
        "%2 = reshape(%1, shape=(2, 3)) : f8[2,3]\nout %2",
        "%2 = squeeze(%1, axes=(1,)) : f8[2,3]\nout %2",
    ),
    "reshape, then expand_dims": (
        "f8[6]",
        "%2 = reshape(%1, shape=(2, 3)) : f8[2,3]\n"
        "%3 = expand_dims(%2, axes=(1,)) : f8[2,1,3]\nout %3",
        "%2 = reshape(%1, shape=(2, 1, 3)) : f8[2,1,3]\nout %2",
    ),
    "expand_dims twice": (
        "f8[3]",
        "%2 = expand_dims(%1, axes=(0,)) : f8[1,3]\n"
        "%3 = expand_dims(%2, axes=(1, 3)) : f8[1,1,3,1]\nout %3",
        "%2 = expand_dims(%1, axes=(0, 1, 3)) : f8[1,1,3,1]\nout %2",
    ),
    "squeeze twice": (
        "f8[1,3,1]",
        "%2 = squeeze(%1, axes=(0,)) : f8[3,1]\n%3 = squeeze(%2, axes=(1,)) : f8[3]\nout %3",
        "%2 = squeeze(%1, axes=(0, 2)) : f8[3]\nout %2",
    ),
    "expand_dims and back": (
        "f8[3]",
        "%2 = expand_dims(%1, axes=(1,)) : f8[3,1]\n%3 = squeeze(%2, axes=(1,)) : f8[3]\nout %3",
        "out %1",
    ),
    "squeeze and back": (
        "f8[3,1]",
        "%2 = squeeze(%1, axes=(1,)) : f8[3]\n%3 = expand_dims(%2, axes=(1,)) : f8[3,1]\nout %3",
        "out %1",
    ),
    # ---- indices
    "x[:]": (
        "f8[3,4]",
        "%2 = getitem(%1, index=(Slice(0, 3), Slice(0, 4))) : f8[3,4]\nout %2",
        "out %1",
    ),
    "x[0] of one element": (
        "f8[1,4]",
        "%2 = getitem(%1, index=(0, Slice(0, 4))) : f8[4]\nout %2",
        "%2 = squeeze(%1, axes=(0,)) : f8[4]\nout %2",
    ),
    "x[::-1] of one element": (
        "f8[1]",
        "%2 = getitem(%1, index=(Slice(0, 1, -1),)) : f8[1]\nout %2",
        "out %1",
    ),
    "x[a][b]": (
        "f8[9,4]",
        """
        %2 = getitem(%1, index=(Slice(8, 4, -2), Slice(0, 4))) : f8[4,4]
        %3 = getitem(%2, index=(Slice(1, 2), 3)) : f8[2]
        out %3
        """,
        "%2 = getitem(%1, index=(Slice(6, 2, -2), 3)) : f8[2]\nout %2",
    ),
    "what was written is read back": (
        "f8[4] f8[]",
        """
        %3 = setitem(%1, %2, index=(1,)) : f8[4]
        %4 = setitem(%3, 7.0, index=(2,)) : f8[4]
        %5 = getitem(%4, index=(1,)) : f8[]
        %6 = getitem(%4, index=(Slice(0, 1),)) : f8[1]
        out %5, %6
        """,
        "%3 = getitem(%1, index=(Slice(0, 1),)) : f8[1]\nout %2, %3",
    ),
    "what was placed is read back": (
        "f8[2]",
        """
        %2 = place(%1, shape=(5,), index=(Slice(1, 2),)) : f8[5]
        %3 = getitem(%2, index=(Slice(1, 2),)) : f8[2]
        %4 = getitem(%2, index=(Slice(3, 2),)) : f8[2]
        out %3, %4
        """,
        "%2 = broadcast_to(0.0, shape=(2,)) : f8[2]\nout %1, %2",
    ),
    "a piece of what was joined": (
        "f8[2] f8[3]",
        """
        %3 = concatenate(%1, %2, axis=0) : f8[5]
        %4 = getitem(%3, index=(Slice(4, 2, -1),)) : f8[2]
        %5 = getitem(%3, index=(1,)) : f8[]
        out %4, %5
        """,
        """
        %3 = getitem(%2, index=(Slice(2, 2, -1),)) : f8[2]
        %4 = getitem(%1, index=(1,)) : f8[]
        out %3, %4
        """,
    ),
    "all is overwritten": (
        "f8[1,3] f8[3]",
        "%3 = setitem(%1, %2, index=(0, Slice(0, 3))) : f8[1,3]\nout %3",
        "%3 = expand_dims(%2, axes=(0,)) : f8[1,3]\nout %3",
    ),
    "the same is overwritten": (
        "f8[3]",
        "%2 = setitem(%1, 1.0, index=(0,)) : f8[3]\n"
        "%3 = setitem(%2, 2.0, index=(0,)) : f8[3]\nout %3",
        "%2 = setitem(%1, 2.0, index=(0,)) : f8[3]\nout %2",
    ),
    "place that fills all": (
        "f8[3]",
        "%2 = place(%1, shape=(3,), index=(Slice(0, 3),)) : f8[3]\nout %2",
        "out %1",
    ),
    "place into a unit axis": (
        "f8[3]",
        "%2 = place(%1, shape=(3, 1), index=(Slice(0, 3), 0)) : f8[3,1]\nout %2",
        "%2 = expand_dims(%1, axes=(1,)) : f8[3,1]\nout %2",
    ),
    # ---- reductions
    "max over one element": (
        "f8[3,1]",
        "%2 = max(%1, axes=(1,)) : f8[3]\nout %2",
        "%2 = squeeze(%1, axes=(1,)) : f8[3]\nout %2",
    ),
    "prod over no axis": ("f8[3]", "%2 = prod(%1, axes=()) : f8[3]\nout %2", "out %1"),
    "all over one element": (
        "b1[1]",
        "%2 = all(%1, axes=(0,)) : b1[]\nout %2",
        "%2 = squeeze(%1, axes=(0,)) : b1[]\nout %2",
    ),
    "sum over one element, from 0.0 on": (
        "f8[3,1]",
        "%2 = sum(%1, axes=(1,)) : f8[3]\nout %2",
        "%2 = squeeze(%1, axes=(1,)) : f8[3]\n%3 = add(%2, 0.0) : f8[3]\nout %3",
    ),
    "integers: sum over one element": (
        "i8[1]",
        "%2 = sum(%1, axes=(0,)) : i8[]\nout %2",
        "%2 = squeeze(%1, axes=(0,)) : i8[]\nout %2",
    ),
}


def simplified(before: Tape) -> Tape:
    return remove_dead(simplify(before))


@pytest.mark.parametrize(("inputs", "before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrite(inputs, before, after):
    given = tape(inputs, before)
    done = simplified(given)
    assert str(done) == str(tape(inputs, after))
    assert_same_values(given, done)
    assert simplified(done) == done


# Each of these would change a value.
KEPT = {
    "x * 0": ("f8[11]", "%2 = mul(%1, 0.0) : f8[11]\nout %2"),
    "x + 0.0": ("f8[11]", "%2 = add(%1, 0.0) : f8[11]\nout %2"),
    "x - -0.0": ("f8[11]", "%2 = sub(%1, -0.0) : f8[11]\nout %2"),
    "0.0 - x": ("f8[11]", "%2 = sub(0.0, %1) : f8[11]\nout %2"),
    "x - x": ("f8[11]", "%2 = sub(%1, %1) : f8[11]\nout %2"),
    "x / x": ("f8[11]", "%2 = div(%1, %1) : f8[11]\nout %2"),
    "x / 3": ("f8[11]", "%2 = div(%1, 3.0) : f8[11]\nout %2"),
    "x / 0": ("f8[11]", "%2 = div(%1, 0.0) : f8[11]\nout %2"),
    "integers: x ** 2": ("i8[7]", "%2 = power(%1, 2) : i8[7]\nout %2"),
    "integers: -1 * x": ("u1[7]", "%2 = mul(%1, u1(255)) : u1[7]\nout %2"),
    "-(x - y)": ("f8[11]", "%2 = sub(%1, 3.0) : f8[11]\n%3 = neg(%2) : f8[11]\nout %3"),
    "(x * a) * b that rounds twice": (
        "f8[11]",
        "%2 = mul(%1, 0.1) : f8[11]\n%3 = mul(%2, 0.3) : f8[11]\nout %3",
    ),
    "(x * 2**-600) * 2**600, which is 0 for small x": (
        "f8[11]",
        f"%2 = mul(%1, {2.0**-600!r}) : f8[11]\n%3 = mul(%2, {2.0**600!r}) : f8[11]\nout %3",
    ),
    "(x * 4) * 0.5": ("f8[11]", "%2 = mul(%1, 4.0) : f8[11]\n%3 = mul(%2, 0.5) : f8[11]\nout %3"),
    "(x * 0) * 2": ("f8[11]", "%2 = mul(%1, 0.0) : f8[11]\n%3 = mul(%2, 2.0) : f8[11]\nout %3"),
    "there and back to a smaller type": (
        "f8[11]",
        "%2 = astype(%1, dtype=f4) : f4[11]\n%3 = astype(%2, dtype=f8) : f8[11]\nout %3",
    ),
    "where of two conditions": (
        "b1[3] b1[3] f8[3]",
        "%4 = where(%1, 1.0, %3) : f8[3]\n%5 = where(%2, %4, 2.0) : f8[3]\nout %5",
    ),
    "sum of a repeated value": (
        "f8[]",
        "%2 = broadcast_to(%1, shape=(10,)) : f8[10]\n%3 = sum(%2, axes=(0,)) : f8[]\nout %3",
    ),
    "a real transpose": ("f8[2,3]", "%2 = transpose(%1, axes=(1, 0)) : f8[3,2]\nout %2"),
    "a transpose to the same shape": (
        "f8[3,3]",
        "%2 = transpose(%1, axes=(1, 0)) : f8[3,3]\nout %2",
    ),
    "a flip": ("f8[3]", "%2 = getitem(%1, index=(Slice(2, 3, -1),)) : f8[3]\nout %2"),
    "what was overwritten from the end": (
        "f8[4] f8[2]",
        """
        %3 = setitem(%1, %2, index=(Slice(3, 2, -2),)) : f8[4]
        %4 = getitem(%3, index=(1,)) : f8[]
        out %4
        """,
    ),
    "a row input made a column": (
        "f8[1,3]",
        "%2 = transpose(%1, axes=(1, 0)) : f8[3,1]\nout %2",
    ),
    "what may have been overwritten": (
        "f8[4]",
        """
        %2 = setitem(%1, 7.0, index=(2,)) : f8[4]
        %3 = getitem(%2, index=(Slice(1, 3),)) : f8[3]
        out %3
        """,
    ),
    "a part of two pieces": (
        "f8[2] f8[3]",
        """
        %3 = concatenate(%1, %2, axis=0) : f8[5]
        %4 = getitem(%3, index=(Slice(1, 2),)) : f8[2]
        out %4
        """,
    ),
    "calls of several results": (
        "b1[2,2]",
        "%2, %3 = nonzero(%1, count=2, ndim=2) : i8[2], i8[2]\nout %2",
    ),
}


@pytest.mark.parametrize(("inputs", "body"), KEPT.values(), ids=KEPT)
def test_kept(inputs, body):
    given = tape(inputs, body)
    assert str(simplified(given)) == str(given)


def test_a_read_looks_back_through_many_writes_but_not_for_ever():
    """Else the reads of an unrolled loop would take quadratic time."""
    writes = [f"%{k + 2} = setitem(%{k + 1}, 0.5, index=({k},)) : f8[300]" for k in range(200)]
    near, far = (f"%{n} = getitem(%201, index=({k},)) : f8[]" for n, k in ((202, 150), (203, 50)))
    done = simplify(tape("f8[300]", "\n".join([*writes, near, far, "out %202, %203"])))
    assert str(done.outputs[0]) == "0.5"
    assert str(done.outputs[1]) == "%202"


def test_new_calls_have_the_line_of_the_call_they_replace():
    given = tape("f8[3]", "%2 = neg(%1) : f8[3]\n%3 = add(2.0, %2) : f8[3]\nout %3")
    line = Source("model.py", 12)
    given = replace(given, calls=(given.calls[0], replace(given.calls[1], src=line, reason="why")))
    (call,) = simplified(given).calls
    assert (call.primitive.name, call.src, call.reason) == ("sub", line, "why")
