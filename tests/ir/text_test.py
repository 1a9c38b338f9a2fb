"""Tapes as text: what they look like, and that they parse back to equal tapes."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from textwrap import dedent

import numpy as np
import pytest
from tests.tapes import tape

import tapegrad as tg
from tapegrad.core.values import Span
from tapegrad.errors import TapeError
from tapegrad.ir.tape import Aval, Call, Guard, Literal, Tape, Var, literal
from tapegrad.ir.text import parse
from tapegrad.primitives import primitives
from tapegrad.primitives.base import Primitive, Slice
from tapegrad.primitives.control import CallTape
from tapegrad.primitives.elementwise import add

F8 = np.dtype(np.float64)
INNER = tape("f8[3]", "%2 = exp(%1) : f8[3]\nout %2")


def text(lines: str) -> str:
    return dedent(lines).strip()


# ---- what a tape looks like


def test_a_traced_function_prints_with_names_and_lines():
    c = np.array([1.0, 2.0, 3.0])

    def loss(x, scale):
        h = np.exp(-x) * c
        if scale > 0:
            h = h * scale
        return h.sum()

    line = loss.__code__.co_firstlineno
    _, made = tg.trace(loss, np.ones(3), 2.0)
    assert str(made) == text(
        f"""
        tape loss(x, scale, c0)
          inp   %1 : f8[3]                      # x
          inp   %2 : f8*[]                      # scale
          cap   %3 : f8[3]                      # c0, read at text_test.py:{line + 1}
                %4 = neg(%1) : f8[3]            # text_test.py:{line + 1}
                %5 = exp(%4) : f8[3]            # text_test.py:{line + 1}
                %6 = mul(%5, %3) : f8[3]        # text_test.py:{line + 1}
                %7 = greater(%2, 0.0) : b1[]    # text_test.py:{line + 2}
                %8 = mul(%6, %2) : f8[3]        # text_test.py:{line + 3}
                %9 = sum(%8, axes=(0,)) : f8[]  # text_test.py:{line + 4}
          guard %7 = True                       # text_test.py:{line + 2} a condition
          out   %9
        """
    )
    assert parse(str(made), (c,)) == made


def test_a_gradient_says_why_each_call_is_there():
    df = tg.grad(lambda x: np.sin(x) * x, compile="never")
    df(1.0)
    assert "cotangent via sin" in str(df.tapes[0])


def test_sub_tapes_print_below():
    """Each once, however often and however deep it is used."""
    x, y, z = (Var(k, Aval((3,), F8)) for k in (1, 2, 3))
    middle = Tape("middle", (x,), (Call(CallTape(INNER), (x,), (y,)),), (y,))
    calls = (Call(CallTape(INNER), (x,), (y,)), Call(CallTape(middle), (y,), (z,)))
    outer = Tape("outer", (x,), calls, (z,))
    assert str(outer) == text(
        """
        tape outer(x0)
          inp   %1 : f8[3]
                %2 = call(%1, tape=@1) : f8[3]
                %3 = call(%2, tape=@2) : f8[3]
          out   %3

        @1 = tape f(x0)
          inp   %1 : f8[3]
                %2 = exp(%1) : f8[3]
          out   %2

        @2 = tape middle(x0)
          inp   %1 : f8[3]
                %2 = call(%1, tape=@1) : f8[3]
          out   %2
        """
    )
    assert parse(str(outer)) == outer


# ---- and back

# An example of each kind of parameter, by its name.
PARAMETERS = {
    "keep": ("h",),
    "own": (0,),
    "why": "it is complex",
    "kth": (0, 2),
    "of": "q",
    "subscripts": "ij,->ij",
    "axes": (0, 2),
    "axis": 1,
    "shape": (3, 4),
    "index": (Slice(0, 3), 2, Slice(4, 2, -2), Span(1, 0, 2, 5)),
    "offset": -1,
    "reverse": True,
    "told": True,
    "dtype": np.dtype(np.float32),
    "order": 2,
    "count": 5,
    "before": 2,
    "ndim": 2,
    "stable": True,
    "right": False,
    "tape": INNER,
    "lower": True,
    "unit": False,
    "transposed": True,
    "rcond": 1e-15,
    "inverse": True,
    "n": 4,
    "norm": "ortho",
    "driver": "evr",
    "sines": True,
    "method": "cg",
    "settings": (("atol", 0.0), ("maxiter", 3)),
    "type": 3,
    "orthogonal": False,
    "larger": True,
    "paths": ((0.5, (("sum", (0,)), ("expand_dims", (0,)))), (1.0, ())),
    "directions": 1,
    "pulls": True,
    "scaled": True,
    "moves": ((1, 0, -2),),
    "fill": -np.inf,
    "body": INNER,
    "carried": 1,
    "most": 7,
    "backwards": True,
    "apart": True,
    "orders": (1,),
    "over": True,
    "until": True,
    "recomputed": True,
    "later": True,
    "instead": True,
    "fall": 1,
    "i": 1,
    "j": 0,
    "q": 3,
    "sure": True,
    "subset": (1, 2),
    "power": 1,
    "twice": (3, 1, 1),
    "left": ((2, 3), False, True),
    "sifted": True,
    "shifted": True,
}
HOLD_A_FUNCTION = ("custom", "foreign_call")


def example(declared: object) -> Primitive:
    """A primitive as it is, or with an example of each parameter."""
    if isinstance(declared, Primitive):
        return declared
    return declared(**{f.name: PARAMETERS[f.name] for f in fields(declared)})


def test_every_primitive_parses_back():
    x, y, out = Var(1, Aval((2, 3), F8)), Var(2, Aval((), F8, weak=True)), Var(5, Aval((), F8))
    for name in sorted(set(primitives()) - set(HOLD_A_FUNCTION)):
        made = Tape("f", (x, y), (Call(example(primitives()[name]), (x, y), (out,)),), (out,))
        assert parse(str(made)) == made


@pytest.mark.parametrize("name", HOLD_A_FUNCTION)
def test_a_users_function_is_more_than_a_text_can_hold(name):
    line = f"%2 = {name}(%1, label='logistic', backward=<rule>) : f8[]"
    with pytest.raises(TapeError, match="line 3: it refers to the user's function 'rule'"):
        parse(f"tape f(x)\n  inp %1 : f8[]\n  {line}\n  out %2")


LITERALS = [
    (0.5, "f8"),
    (-0.0, "f8"),
    (0.0, "f8"),
    (1e300, "f8"),
    (5e-324, "f8"),
    (0.1 + 0.2, "f8"),
    (math.nan, "f8"),
    (-math.nan, "f8"),
    (math.inf, "f8"),
    (-math.inf, "f8"),
    (0.1, "f4"),
    (-0.0, "f4"),
    (1e-45, "f4"),
    (math.nan, "f4"),
    (-math.inf, "f4"),
    (True, "b1"),
    (False, "b1"),
    (3, "i8"),
    (-(2**63), "i8"),
    (-3, "i4"),
    (200, "u1"),
    (2**64 - 1, "u8"),
]


@pytest.mark.parametrize(("value", "dtype"), LITERALS, ids=str)
def test_literals_parse_back_to_the_same_bits(value, dtype):
    c = literal(value, dtype)
    made = Tape("f", (), (), (c,), (Guard(c, c),))
    back = parse(str(made))
    assert back == made
    assert isinstance(back.outputs[0], Literal)
    assert back.outputs[0].dtype == np.dtype(dtype)


def test_types_and_names_parse_back():
    avals = [Aval((), F8, weak=True), Aval((0, 1), np.dtype("b1")), Aval((3,), np.dtype("i4"))]
    inputs = tuple(Var(k, aval) for k, aval in enumerate(avals, start=1))
    made = Tape("f", inputs, (), inputs, names=("", "params_W1", "größe"))
    back = parse(str(made))
    assert back == made
    assert back.names == made.names


def test_several_results_parse_back():
    mask, i, j = (
        Var(1, Aval((2, 2), np.dtype(bool))),
        *(Var(k, Aval((3,), np.dtype("i8"))) for k in (2, 3)),
    )
    made = Tape("f", (mask,), (Call(primitives()["nonzero"](3, 2), (mask,), (i, j)),), (j, i))
    assert parse(str(made)) == made


def test_a_tape_without_results_parses_back():
    made = tape("f8[]", "out")
    assert made.outputs == ()
    assert parse(str(made)) == made


def test_comments_are_no_part_of_a_tape():
    commented = "tape f(x0)\n  inp %1 : f8[]  # a = 1\n\n  # only a remark: @1 %9 <this>\n  out %1"
    assert parse(commented) == tape("f8[]", "out %1")


def test_captured_values_are_given_again():
    c = np.arange(3.0)
    _, made = tg.trace(lambda x: x * c, np.ones(3))
    assert parse(str(made), made.captured) == made
    assert parse(str(made)).free_inputs == made.inputs
    with pytest.raises(TapeError, match="has 1 captured inputs, and 2 were given"):
        parse(str(made), (c, c))


def test_derivatives_parse_back():
    def f(x, y):
        h = np.concatenate([x[1:], y]) @ np.outer(y, x)[:, 0].repeat(2)[:5]
        return np.where(h > 0, h, -h) + np.prod(np.cumsum(x)) / np.max(y)

    df = tg.grad(f, argnums=(0, 1), compile="never")
    df(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.5, 2.5]))
    (made,) = df.tapes
    assert parse(str(made), made.captured) == made


# ---- texts that aren't tapes


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("out %2", r"line 3: %2 is used before it is defined: out %2"),
        ("%2 = expp(%1) : f8[]\nout %2", "line 3: there is no primitive called expp"),
        ("%2 = exp(%1, axes=(0,)) : f8[]\nout %2", "line 3: exp has no parameters"),
        ("%2 = exp(%1 : f8[]\nout %2", "line 3 doesn't parse"),
        ("%2, %3 = exp(%1) : f8[]\nout %2", "line 3 doesn't parse"),
        ("%2 = exp : f8[]\nout %2", "line 3: 'exp' isn't a call"),
        ("%2 = sum(%1, axis=0) : f8[]\nout %2", "line 3 doesn't parse"),
        ("%2 = sum(%1, axes=range(1)) : f8[]\nout %2", r"line 3: unknown parameter range\(1\)"),
        ("%2 = call(%1, tape=@1) : f8[]\nout %2", "line 3: there is no sub-tape @1"),
        ("nonsense", "line 3"),
        ("", "no line `out`"),
    ],
)
def test_an_error_names_the_line(body, message):
    with pytest.raises(TapeError, match=message):
        parse(f"tape f(x)\n  inp %1 : f8[]\n{body}")


@pytest.mark.parametrize("nothing", ["", "not a tape", "tape f"])
def test_a_text_without_a_head_is_an_error(nothing):
    with pytest.raises(TapeError, match="line 1 is not the head of a tape"):
        parse(nothing)


def test_an_error_in_a_sub_tape_names_it():
    outer = Tape(
        "g", INNER.inputs, (replace(INNER.calls[0], primitive=CallTape(INNER)),), INNER.outputs
    )
    broken = str(outer).replace("exp(%1)", "exp(%7)")
    with pytest.raises(TapeError, match="@1, line 3: %7 is used before it is defined"):
        parse(broken)


def test_a_sub_tape_that_holds_itself_is_an_error():
    head = "tape f(x)\n  inp %1 : f8[]\n  %2 = call(%1, tape=@1) : f8[]\n  out %2"
    with pytest.raises(TapeError, match="@1, or it holds itself"):
        parse(f"{head}\n\n@1 = {head}")


def test_operands_and_results_may_be_the_same_array():
    x, y = INNER.inputs[0], INNER.outputs[0]
    made = Tape("f", (x,), (Call(add, (x, x), (y,)),), (y, x, y))
    assert parse(str(made)) == made
