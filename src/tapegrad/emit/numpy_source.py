"""The reference emitter: a tape as readable NumPy, one statement a call.

    # model.py:12: h = np.tanh(x @ W + b)
    t = x @ W
    t1 = t + b
    h = np.tanh(t1)

Nothing is fused or reordered, so this is the program that the compiled loops must agree with, and
the one to read when they don't. Most primitives are an expression; those that write into their
result take several lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.emit.names import Scope, user_names
from tapegrad.handlers import quiet
from tapegrad.ir.tape import Call, Guard, Literal, Operand, Source, Tape, Var
from tapegrad.primitives import contractions, control, reductions, scatter, solving, sorting, views
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Elementwise, Library, Slice
from tapegrad.primitives.special import BesselI, Polygamma

INDENT = "    "

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip


def numpy_source(tape: Tape) -> str:
    """The source of a function of all inputs of the tape, captured ones last.

    Sub-tapes must be inlined. What has no line of NumPy is called by its name.
    """
    return _Writer(tape).text()


def numpy_function(tape: Tape) -> Callable[..., list[Any]]:
    """The source as a function of the values of the free inputs; it returns a list of outputs."""
    writer = _Writer(tape)
    exec(compile(writer.text(), f"<tapegrad {tape.name}>", "exec"), writer.functions)
    function = writer.functions[writer.name]

    @quiet
    def run(*values: Any) -> list[Any]:
        pairs = zip(tape.inputs, [*values, *tape.captured], strict=True)
        found = function(*[v.dtype.type(x) if v.shape == () else x for v, x in pairs])
        return [found] if len(tape.outputs) == 1 else list(found)

    return run


class _Writer:
    """Writes one function. `functions` are what its source sees besides NumPy and SciPy."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.functions: dict[str, Any] = {}
        self.handed_out = Scope({"scipy"})
        self.name = self.handed_out.fresh(tape.name)
        names = tape.names or ("",) * len(tape.inputs)
        self.names = {
            var: self.handed_out.fresh(name or "x")
            for var, name in zip(tape.inputs, names, strict=True)
        }
        self.hints: dict[Var, str] = user_names(tape)
        for x, hint in zip(tape.outputs, tape.output_names, strict=False):
            if isinstance(x, Var) and hint:
                self.hints.setdefault(x, hint)
        self.lines: list[str] = []

    def text(self) -> str:
        lines = [f"def {self.name}({', '.join(self.names.values())}):"]
        src: Source | None = None
        for guard in self.tape.guards:
            if isinstance(guard.operand, Literal) or guard.operand in self.names:
                self._guard(guard)
        for call in self.tape.calls:
            if call.src is not None and call.src != src:
                src = call.src
                self.lines.append(f"# {src}: {src.text}" if src.text else f"# {src}")
            self._call(call)
            for guard in self.tape.guards:
                if guard.operand in call.outs:
                    self._guard(guard)
        outputs = ", ".join(map(self._alone, self.tape.outputs))
        self.lines.append(f"return {outputs or '()'}")
        body = "\n".join([*lines, *[INDENT + line for line in self.lines]])
        imports = "import numpy as np\n"
        if "scipy.special." in body:
            imports += "import scipy.special\n"
        return f"{imports}\n\n{body}\n"

    # ---- operands

    def _alone(self, x: Operand) -> str:
        """A variable's name, or a constant that says its dtype."""
        if isinstance(x, Var):
            return self.names[x]
        if x.dtype == np.bool_:
            return f"np.{bool(x.value)}_"
        return f"np.{x.dtype.name}({_number(x.value)})"

    def _operands(self, call: Call) -> list[str]:
        """Names and constants; beside a variable of its dtype, a constant is a plain number."""
        kinds = {x.dtype for x in call.operands if isinstance(x, Var)}
        plain = kinds & {np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)}
        return [
            _number(x.value) if isinstance(x, Literal) and x.dtype in plain else self._alone(x)
            for x in call.operands
        ]

    # ---- statements

    def _call(self, call: Call) -> None:
        operands = self._operands(call)
        hint = "ct" if call.is_cotangent else "t"
        outs = [self.handed_out.fresh(self.hints.get(out, hint)) for out in call.outs]
        self.names.update(zip(call.outs, outs, strict=True))
        primitive: Any = call.primitive
        if isinstance(primitive, Elementwise):
            self.lines.append(f"{outs[0]} = {_elementwise(primitive, operands)}")
        elif type(primitive) in EXPRESSIONS:
            expression = EXPRESSIONS[type(primitive)]
            self.lines.append(f"{outs[0]} = {expression(primitive, operands, call)}")
        elif type(primitive) in STATEMENTS:
            self.lines += STATEMENTS[type(primitive)](primitive, outs[0], operands, call)
        elif isinstance(primitive, scatter.Nonzero):
            self.lines.append(f"({', '.join(outs)},) = np.nonzero({operands[0]})")
        else:
            self._foreign(primitive, outs, operands)

    def _foreign(self, primitive: Any, outs: Sequence[str], operands: Sequence[str]) -> None:
        """A call of a function that is only known by name."""
        assert isinstance(primitive, (control.Opaque, Library)), primitive
        name = self.handed_out.fresh(str(primitive))
        self.functions[name] = primitive.evaluate
        self.lines.append(f"{', '.join(outs)} = {name}({', '.join(operands)})")

    def _guard(self, guard: Guard) -> None:
        """A fact that the trace took for granted, checked as soon as its variable is known."""
        found, expected = self._alone(guard.operand), self._alone(guard.expected)
        nan = guard.expected.value != guard.expected.value
        self.lines.append(f"if {found} == {found}:" if nan else f"if {found} != {expected}:")
        line = f" ({guard.src})" if guard.src else ""
        message = f"traced where {guard.what or 'a value'} was {guard.expected}{line}"
        self.lines.append(f"{INDENT}raise ValueError({message!r})")


def _number(value: np.generic) -> str:
    """The shortest text that is this number."""
    text = str(value)
    return (
        f"{'-' * (text[0] == '-')}np.{text.strip('-')}"
        if text.strip("-") in ("nan", "inf")
        else text
    )


# ---- elementwise


def _elementwise(primitive: Elementwise, operands: Sequence[str]) -> str:
    name = str(primitive.name)
    if name in OPERATORS:
        return f"{operands[0]} {OPERATORS[name]} {operands[1]}"
    if primitive is ew.neg:
        return f"-{operands[0]}"
    if primitive is ew.stop_gradient:
        return operands[0]
    return f"{_function(primitive)}({', '.join(operands)})"


def _function(primitive: Elementwise) -> str:
    """The name under which users know the function."""
    if isinstance(primitive.ufunc, np.ufunc):
        return f"np.{primitive.ufunc.__name__}"
    if primitive in (ew.where, ew.copy):
        return f"np.{primitive.name}"
    return f"scipy.special.{primitive.name}"


# ---- dtypes, axes, indices


def _dtype(dtype: np.dtype, before: str = ", ") -> str:
    """`, np.float32`: a further argument, left out where it is NumPy's own choice."""
    return "" if dtype == np.float64 else f"{before}{_dtype_name(dtype)}"


def _dtype_name(dtype: np.dtype) -> str:
    return "bool" if dtype == np.bool_ else f"np.{dtype.name}"


def _shape(shape: tuple[int, ...]) -> str:
    return str(tuple(int(n) for n in shape))


def _axes(p: Any, x: Operand) -> str:
    """`, axis=0`, or nothing if all axes are meant."""
    if len(p.axes) == len(x.shape):
        return ""
    return f", axis={p.axes[0] if len(p.axes) == 1 else p.axes}"


def _index(index: Sequence[int | Slice], shape: tuple[int, ...]) -> str:
    """`[1:, 0]`; whole axes at the end need no mention."""
    entries = [
        str(k) if isinstance(k, int) else _slice(k, n) for k, n in zip(index, shape, strict=True)
    ]
    while len(entries) > 1 and entries[-1] == ":":
        entries.pop()
    return f"[{', '.join(entries) or '()'}]"


def _slice(k: Slice, extent: int) -> str:
    s = k.as_slice()
    first, last = (0, extent) if s.step > 0 else (extent - 1, None)
    start = "" if s.start == first else s.start
    stop = "" if s.stop == last or (s.step > 1 and s.stop >= extent) else s.stop
    return f"{start}:{stop}" + ("" if s.step == 1 else f":{s.step}")


# ---- primitives that are an expression: (primitive, operands as text, the call) -> text


def _transpose(p: Any, xs: Sequence[str], call: Call) -> str:
    if p.axes == tuple(reversed(range(len(p.axes)))):
        return f"{xs[0]}.T"
    return f"np.transpose({xs[0]}, {p.axes})"


def _expand(p: Any, xs: Sequence[str], call: Call) -> str:
    entries = ["None" if a in p.axes else ":" for a in range(len(call.out.shape))]
    while entries[-1] == ":":
        entries.pop()
    return f"{xs[0]}[{', '.join(entries)}]"


def _fold(name: str) -> Callable[..., str]:
    def expression(p: Any, xs: Sequence[str], call: Call) -> str:
        (x,) = call.operands
        if name == "sum" and p.is_wide(x):
            return f"np.sum({xs[0]}{_axes(p, x)}, dtype=np.float64).astype(np.float32)"
        kind = (
            x.dtype if name in ("sum", "prod") and x.dtype not in (np.float32, np.int64) else None
        )
        dtype = "" if kind is None else _dtype(kind, ", dtype=")
        return f"np.{name}({xs[0]}{_axes(p, x)}{dtype})"

    return expression


def _cumulative(p: Any, xs: Sequence[str], call: Call) -> str:
    name, axis = p.name, p.axis
    dtype = "" if call.out.dtype == np.float32 else _dtype(call.out.dtype, ", dtype=")
    if getattr(p, "reverse", False):
        inner = f"np.{name}(np.flip({xs[0]}, {axis}), {axis}{dtype})"
        return f"np.flip({inner}, {axis})"
    return f"np.{name}({xs[0]}, {axis}{dtype})"


def _diagonal(p: Any, xs: Sequence[str], call: Call) -> str:
    if len(call.operands[0].shape) > 2:
        return f"np.diagonal({xs[0]}, {p.offset}, -2, -1)"
    return f"np.diagonal({xs[0]}{f', {p.offset}' if p.offset else ''})"


def _polygamma(p: Any, xs: Sequence[str], call: Call) -> str:
    text = f"scipy.special.polygamma({p.order}, {xs[0]})"
    return text if call.out.dtype == np.float64 else f"{text}.astype({_dtype_name(call.out.dtype)})"


def _bessel_i(p: Any, xs: Sequence[str], call: Call) -> str:
    text = f"scipy.special.iv{'e' * p.scaled}({p.order}, {xs[0]})"
    return text if call.out.dtype == np.float64 else f"{text}.astype({_dtype_name(call.out.dtype)})"


def _triangle(p: Any, xs: Sequence[str], call: Call) -> str:
    name = "tril" if p.lower else "triu"
    return f"np.{name}({xs[0]}{f', {p.offset}' if p.offset else ''})"


def _argsort(p: Any, xs: Sequence[str], call: Call) -> str:
    return f"np.argsort({xs[0]}, {p.axis}" + (", kind='stable')" if p.stable else ")")


EXPRESSIONS: dict[type, Callable[[Any, Sequence[str], Call], str]] = {
    ew.AsType: lambda p, xs, call: f"{xs[0]}.astype({_dtype_name(p.dtype)})",
    BesselI: _bessel_i,
    Polygamma: _polygamma,
    reductions.Sum: _fold("sum"),
    reductions.Prod: _fold("prod"),
    reductions.Max: _fold("max"),
    reductions.Min: _fold("min"),
    reductions.Any_: _fold("any"),
    reductions.All: _fold("all"),
    reductions.ArgMax: lambda p, xs, call: f"np.argmax({xs[0]}, {p.axis})",
    reductions.ArgMin: lambda p, xs, call: f"np.argmin({xs[0]}, {p.axis})",
    reductions.CumSum: _cumulative,
    reductions.CumProd: _cumulative,
    views.Transpose: _transpose,
    views.BroadcastTo: lambda p, xs, call: f"np.broadcast_to({xs[0]}, {_shape(p.shape)})",
    views.Reshape: lambda p, xs, call: f"{xs[0]}.reshape({_shape(p.shape)})",
    views.ExpandDims: _expand,
    views.Squeeze: lambda p, xs, call: f"np.squeeze({xs[0]}, {p.axes})",
    views.GetItem: lambda p, xs, call: xs[0] + _index(p.index, call.operands[0].shape),
    views.Diagonal: _diagonal,
    scatter.Concatenate: lambda p, xs, call: f"np.concatenate([{', '.join(xs)}], {p.axis})",
    scatter.Gather: lambda p, xs, call: f"{xs[0]}[{', '.join(xs[1:])}]",
    contractions.MatMul: lambda p, xs, call: f"{xs[0]} @ {xs[1]}",
    solving.Triangle: _triangle,
    sorting.ArgSort: _argsort,
    sorting.SearchSorted: lambda p, xs, call: (
        f"np.searchsorted({xs[0]}, {xs[1]}" + (", 'right')" if p.right else ")")
    ),
}

# ---- primitives that write into their result: (primitive, its name, operands, the call) -> lines


def _zeros(out: str, call: Call) -> str:
    return f"{out} = np.zeros({_shape(call.out.shape)}{_dtype(call.out.dtype)})"


def _place(p: Any, out: str, xs: Sequence[str], call: Call) -> list[str]:
    return [_zeros(out, call), f"{out}{_index(p.index, p.shape)} = {xs[0]}"]


def _place_diagonal(p: Any, out: str, xs: Sequence[str], call: Call) -> list[str]:
    n = call.operands[0].shape[-1]
    starts = -min(p.offset, 0), max(p.offset, 0)
    along = [f"np.arange({f'{k}, {k + n}' if k else n})" for k in starts]
    batch = "..., " if len(call.out.shape) > 2 else ""
    return [_zeros(out, call), f"{out}[{batch}{', '.join(along)}] = {xs[0]}"]


def _setitem(p: Any, out: str, xs: Sequence[str], call: Call) -> list[str]:
    return [f"{out} = np.array({xs[0]})", f"{out}{_index(p.index, call.out.shape)} = {xs[1]}"]


def _scatter_add(p: Any, out: str, xs: Sequence[str], call: Call) -> list[str]:
    index = f"({', '.join(xs[1:])}{',' * (len(xs) == 2)})"
    return [_zeros(out, call), f"np.add.at({out}, {index}, {xs[0]})"]


def _scatter_set(p: Any, out: str, xs: Sequence[str], call: Call) -> list[str]:
    return [f"{out} = np.array({xs[0]})", f"{out}[{', '.join(xs[2:])}] = {xs[1]}"]


def _winners(p: Any, out: str, xs: Sequence[str], call: Call) -> list[str]:
    """Each write leaves its number: those found afterwards were not overwritten."""
    index, shape = ", ".join(xs), call.out.shape
    numbers = f"np.arange({call.out.aval.size})"
    if len(shape) != 1:
        numbers += f".reshape({_shape(shape)})"
    return [
        f"{out} = np.full({_shape(p.shape[: len(xs)])}, -1)",
        f"{out}[{index}] = {numbers}",
        f"{out} = {out}[{index}] == {numbers}",
    ]


STATEMENTS: dict[type, Callable[[Any, str, Sequence[str], Call], list[str]]] = {
    scatter.Place: _place,
    scatter.PlaceDiagonal: _place_diagonal,
    scatter.SetItem: _setitem,
    scatter.ScatterAdd: _scatter_add,
    scatter.ScatterSet: _scatter_set,
    scatter.Winners: _winners,
}
