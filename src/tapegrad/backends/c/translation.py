"""From the source of a kernel to C, in one pass over its syntax tree.

    for i in range(5):                    for (int64_t i = 0; i < 5; i += 1) {
        t = exp(-(w[i] * x[i]))    -->        double t = exp(-(w[i] * x[i]));
        d_w[i, j] = t                         d_w[i * 3 + j] = t;
                                          }

The shapes of arrays and the dtypes of numbers are known, as numba's are
(`cpu.support.translation`). A word without a meaning in C is an error.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tapegrad.backends.c.words import LIBM, ON_WHOLE, OWN, TESTS, own, product, product_of_windows
from tapegrad.backends.source.driver import INDENT
from tapegrad.backends.source.program import LINE, Kernel, lines_of
from tapegrad.errors import UnsupportedError

F8, F4, I8, B1 = map(np.dtype, ("f8", "f4", "i8", "b1"))
TYPES = {F8: "double", F4: "float", I8: "int64_t", B1: "bool"}
SIGNS: dict[type[ast.AST], str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"},
    **{ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.And: "&&", ast.Or: "||"},
    **{ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
    **{ast.USub: "-", ast.Not: "!", ast.Invert: "~"},
}


class Value(NamedTuple):
    """An expression in C: a number of this dtype or, with `axes`, the address of an array's first
    element. Each axis has an extent and a stride."""

    text: str
    dtype: np.dtype
    axes: tuple[tuple[int, int], ...] | None = None
    constant: bool = False  # whether nothing writes to the array


def in_rows(shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The extents and strides of a row-major array."""
    return tuple([(n, math.prod(shape[k + 1 :])) for k, n in enumerate(shape)])


def ways(axes: Any, along: Sequence[int]) -> Any:
    """The strides of the rows and columns of a matrix that goes `along` two axes of an array. For
    windows, the extents and strides of each axis of the rows, and of the columns."""
    if len(along) == 2:
        return tuple([axes[axis][1] for axis in along])
    rows, *rest = along
    triples = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    found = [(count, axes[axis][1] * step) for axis, count, step in triples]
    return tuple(found[:rows]), tuple(found[rows:])


def listed_ways(step: Any) -> str:
    """These as a C array: the number of axes, then the extent and stride of each."""
    found = step if isinstance(step, tuple) else ((1, step),)
    return f"(int64_t[]){{{', '.join(map(str, (len(found), *chain.from_iterable(found))))}}}"


def type_name(dtype: np.dtype) -> str:
    """The name of a dtype in C."""
    if dtype not in TYPES:
        raise UnsupportedError(f"C code has no numbers of dtype {dtype}. Use float64 or float32")
    return TYPES[dtype]


def number(x: Any, dtype: np.dtype) -> str:
    """A literal of this dtype."""
    if dtype == B1:
        return "true" if x else "false"
    if dtype == I8:
        return str(int(x))
    if not np.isfinite(x):
        return "NAN" if np.isnan(x) else "INFINITY" if x > 0 else "-INFINITY"
    return f"{float(x)!r}" if dtype == F8 else f"{dtype.type(x)!s}f"


def signature(name: str, parameters: Sequence[str]) -> str:
    """A function's name and parameters, on one line or several."""
    listed = ", ".join(parameters) or "void"
    if len(name) + len(listed) < LINE - 3:
        return f"{name}({listed})"
    lines = lines_of(", ".join(x.replace(" ", "~") for x in parameters), LINE - 4)
    return f"{name}(\n" + "\n".join(INDENT + line.replace("~", " ") for line in lines) + ")"


class Translator:
    """The translation of one kernel to C. `helpers` collects the definitions that it needs, by
    name."""

    def __init__(
        self, kernel: Kernel, constants: Mapping[str, Any], helpers: dict[str, str]
    ) -> None:
        (tree,) = ast.parse(kernel.text).body
        assert isinstance(tree, ast.FunctionDef)
        self.name, self.tree = kernel.name, tree
        self.constants, self.helpers = constants, helpers
        self.known: dict[str, Value] = {}
        self.uses = Counter(x.id for x in ast.walk(tree) if isinstance(x, ast.Name))
        self.declared: list[str] = []  # at the top: variables of several blocks
        self.lines: list[str] = []
        self.depth = 1
        inputs = {id(p) for p in kernel.parameters if getattr(p, "role", "") == "input"}
        self.parameters = []
        for p, name, (passed, shape, dtype) in zip(
            kernel.parameters, kernel.names, kernel.types(), strict=True
        ):
            if passed == "array":
                self.known[name] = Value(name, dtype, in_rows(shape), id(p) in inputs)
                self.parameters.append(f"{self.pointer(self.known[name])}restrict {name}")
            else:
                self.known[name] = Value(name, dtype)
                self.parameters.append(f"{type_name(dtype)} {name}")

    def text(self) -> str:
        """The function in C."""
        self.block(self.tree.body)
        head = signature(f"static int {self.name}", self.parameters) + " {"
        declared = [f"{INDENT}{x};" for x in self.declared]
        return "\n".join([head, *declared, *self.lines, "}", ""])

    def pointer(self, x: Value) -> str:
        return f"{'const ' * x.constant}{type_name(x.dtype)} *"

    def refuse(self, node: ast.AST) -> UnsupportedError:
        return UnsupportedError(f"{self.name} has no C code: {ast.unparse(node)}")

    # ---- statements

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for position, statement in enumerate(statements):
            if isinstance(statement, ast.Assign):
                self._assign(statement, statements[position:])
            elif isinstance(statement, ast.AugAssign):
                target, value = self.expression(statement.target), self.expression(statement.value)
                self.line(f"{target.text} {SIGNS[type(statement.op)]}= {value.text};")
            elif isinstance(statement, ast.Return):
                assert statement.value is not None
                self.line(f"return {self.expression(statement.value).text};")
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._called(statement.value)
            elif isinstance(statement, (ast.If, ast.While)):
                word = "if" if isinstance(statement, ast.If) else "while"
                self.inner(f"{word} ({self.expression(statement.test).text})", statement.body)
            elif isinstance(statement, ast.For):
                self._for(statement)
            else:
                raise self.refuse(statement)

    def inner(self, head: str, body: Sequence[ast.stmt]) -> None:
        self.line(f"{head} {{")
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line("}")

    def _for(self, loop: ast.For) -> None:
        assert isinstance(loop.iter, ast.Call) and isinstance(loop.target, ast.Name)
        bounds = [self.expression(x).text for x in loop.iter.args]
        name, step = loop.target.id, bounds[2] if len(bounds) == 3 else "1"
        start, stop = bounds[:2] if len(bounds) > 1 else ("0", bounds[0])
        sign = ">" if step.startswith("-") else "<"
        before = self.known.pop(name, None)
        self.known[name] = Value(name, I8)
        head = f"for (int64_t {name} = {start}; {name} {sign} {stop}; {name} += {step})"
        self.inner(head, loop.body)
        del self.known[name]
        if before is not None:
            self.known[name] = before

    def _assign(self, statement: ast.Assign, rest: Sequence[ast.stmt]) -> None:
        (target,) = statement.targets
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            self._rename(target.elts, [self.expression(x) for x in statement.value.elts])
            return
        value = self.expression(statement.value)
        if isinstance(target, ast.Subscript):
            self.line(f"{self.expression(target).text} = {value.text};")
        elif not isinstance(target, ast.Name):
            raise self.refuse(statement)
        elif target.id in self.known:
            self.line(f"{target.id} = {value.text};")
        else:
            kind = f"{type_name(value.dtype)} " if value.axes is None else self.pointer(value)
            self.known[target.id] = value._replace(text=target.id)
            here = sum(
                isinstance(x, ast.Name) and x.id == target.id for s in rest for x in ast.walk(s)
            )
            if here < self.uses[target.id]:  # used outside this block
                self.declared.append(f"{kind}{target.id}")
                kind = ""
            self.line(f"{kind}{target.id} = {value.text};")

    def _rename(self, targets: Sequence[Any], values: Sequence[Value]) -> None:
        """`a, b = b, a`, of arrays."""
        pairs = [(target.id, value) for target, value in zip(targets, values, strict=True)]
        if not any(name in self.known for name, _ in pairs):
            self.declared += [f"{self.pointer(value)}{name}" for name, value in pairs]
            for name, value in pairs:
                self.known[name] = value._replace(text=name)
                self.line(f"{name} = {value.text};")
            return
        end = "_"
        while any(name + end in self.uses for name, _ in pairs):
            end += "_"
        before = [f"{self.pointer(value)}{name}{end} = {value.text};" for name, value in pairs]
        self.line("{ " + " ".join(before))
        self.line("  " + " ".join([f"{name} = {name}{end};" for name, _ in pairs]) + " }")

    def _called(self, x: ast.Call) -> None:
        """`clear(vector)`, or `matmul(x, y, out)` and its variants: `front_` for the first rows,
        columns and terms alone, `add_` to add to `out`."""
        name = getattr(x.func, "id", "")
        if name == "clear":
            vector = self.expression(x.args[0])
            ((count, _),) = vector.axes or ()
            self.line(f"memset({vector.text}, 0, {count} * sizeof *{vector.text});")
            return
        if name.removeprefix("add_") not in ("matmul", "front_matmul"):
            raise self.refuse(x)
        arrays = [self.expression(arg) for arg in x.args[:3]]
        if len({array.dtype for array in arrays}) > 1:
            raise self.refuse(x)
        suffix = "f" if arrays[0].dtype == F4 else ""
        are_windows = any(isinstance(step, tuple) for _, step in arrays[1].axes or ())
        function = f"matmul_of_windows{suffix}" if are_windows else f"matmul{suffix}"
        written = product_of_windows if are_windows else product
        self.helpers[function] = written(type_name(arrays[0].dtype), suffix)
        given = [self.expression(arg).text for arg in x.args[3:]]
        listed = []
        for array in arrays:
            (_, rows), (_, columns) = array.axes or ()
            steps: list[Any] = [rows, columns]
            if are_windows and array is arrays[1]:
                steps = [*map(listed_ways, steps)]
            listed += [array.text, *map(str, steps)]
        (m, _), (n, _) = arrays[2].axes or ()
        sizes = given or [str(m), str(n), str((arrays[0].axes or ())[1][0])]
        adds = "true" if name.startswith("add_") else "false"
        self.line(f"{function}({', '.join([*listed, *sizes, adds])});")

    # ---- expressions

    def expression(self, x: ast.expr) -> Value:
        found: Value = getattr(self, f"_{type(x).__name__.lower()}", self.refused)(x)
        return found

    def refused(self, x: ast.expr) -> Value:
        raise self.refuse(x)

    def operand(self, x: ast.expr) -> Value:
        """An expression inside another, in parentheses where needed."""
        value = self.expression(x)
        alone = isinstance(x, (ast.Name, ast.Constant, ast.Subscript, ast.Call))
        return value if alone else value._replace(text=f"({value.text})")

    def together(self, *xs: ast.expr) -> tuple[np.dtype, list[str]]:
        """The common dtype of numbers that are added, compared and so on, and their expressions."""
        values = [self.operand(x) for x in xs]
        kinds = {value.dtype for value in values}
        dtype = np.result_type(*kinds) if len(kinds) > 1 else values[0].dtype
        type_name(dtype)
        # C converts like NumPy, except integers beside float32.
        wide = dtype == F8 and F4 in kinds
        return dtype, [f"(double){v.text}" if wide and v.dtype == I8 else v.text for v in values]

    def _constant(self, x: ast.Constant) -> Value:
        dtype = B1 if type(x.value) is bool else I8 if type(x.value) is int else F8
        return Value(number(x.value, dtype), dtype)

    def _name(self, x: ast.Name) -> Value:
        if x.id in self.known:
            return self.known[x.id]
        if x.id in ("nan", "inf"):
            return Value(number(float(x.id), F8), F8)
        if x.id not in self.constants:
            raise self.refuse(x)
        value = self.constants[x.id]
        type_name(value.dtype)
        return Value(number(value, value.dtype), value.dtype)

    def _subscript(self, x: ast.Subscript) -> Value:
        """An element, or a part of an array: along the axes without an entry."""
        array = self.expression(x.value)
        entries = x.slice.elts if isinstance(x.slice, ast.Tuple) else [x.slice]
        at, rest = self.place(array, entries)
        if not rest:
            return Value(f"{array.text}[{at or 0}]", array.dtype)
        return array._replace(text=f"({array.text} + {at})" if at else array.text, axes=rest)

    def place(self, array: Value, entries: Sequence[ast.expr]) -> tuple[str, Any]:
        """The offset of an entry from an array's first element, and the remaining axes."""
        assert array.axes is not None
        terms, rest = [], [*array.axes[len(entries) :]]
        kept = []
        for entry, (size, stride) in zip(entries, array.axes, strict=False):
            if isinstance(entry, ast.Slice):  # a whole axis
                kept.append((size, stride))
                continue
            text = self.expression(entry).text if stride == 1 else self.operand(entry).text
            if text != "0":
                terms.append(text if stride == 1 else f"{text} * {stride}")
        return " + ".join(terms), (*kept, *rest)

    def _attribute(self, x: ast.Attribute) -> Value:
        """`x.T`."""
        array = self.expression(x.value)
        return array._replace(axes=(array.axes or ())[::-1])

    def _binop(self, x: ast.BinOp) -> Value:
        if type(x.op) not in SIGNS:
            raise self.refuse(x)
        sign = SIGNS[type(x.op)]
        dtype, (left, right) = self.together(x.left, x.right)
        if dtype == B1 and sign in "+-*":
            raise self.refuse(x)
        if sign == "/" and dtype.kind != "f":
            dtype, left = F8, f"(double){left}"
        return Value(f"{left} {sign} {right}", dtype)

    def _unaryop(self, x: ast.UnaryOp) -> Value:
        value = self.operand(x.operand)
        dtype = B1 if isinstance(x.op, ast.Not) else value.dtype
        return Value(f"{SIGNS[type(x.op)]}{value.text}", dtype)

    def _compare(self, x: ast.Compare) -> Value:
        _, (left, right) = self.together(x.left, *x.comparators)
        return Value(f"{left} {SIGNS[type(x.ops[0])]} {right}", B1)

    def _boolop(self, x: ast.BoolOp) -> Value:
        return Value(f" {SIGNS[type(x.op)]} ".join(self.operand(v).text for v in x.values), B1)

    def _part(self, name: str, array: Value, args: Sequence[ast.expr]) -> Value:
        """A matrix in an array."""
        assert array.axes is not None
        if name == "panel":
            start, along, shape = args
            at, _ = self.place(array, start.elts if isinstance(start, ast.Tuple) else [start])
            strides = ways(array.axes, ast.literal_eval(along))
            axes: Any = tuple(zip(ast.literal_eval(shape), strides, strict=True))
        else:
            zero, count = ast.Constant(0), ast.literal_eval(args[1])
            by_rows = name == "row_part"
            at, _ = self.place(array, [args[0], zero] if by_rows else [zero, args[0]])
            (m, down), (n, across) = array.axes
            axes = ((count, down), (n, across)) if by_rows else ((m, down), (count, across))
        return array._replace(text=f"({array.text} + {at})" if at else array.text, axes=axes)

    def _call(self, x: ast.Call) -> Value:
        name, args = getattr(x.func, "id", ""), x.args
        if name == "reshaped":
            return self.expression(args[0])._replace(axes=in_rows(ast.literal_eval(args[1])))
        if name == "part":
            base, start = self.expression(args[0]), self.operand(args[1]).text
            axes = in_rows(ast.literal_eval(args[2]))
            return base._replace(text=f"({base.text} + {start})", axes=axes)
        if name in ("row_part", "column_part", "panel"):
            return self._part(name, self.expression(args[0]), args[1:])
        if name == "rolled":  # it is for LLVM
            return self.expression(args[0])
        if name == "plus":
            return self._binop(ast.BinOp(args[0], ast.Add(), args[1]))
        if name == "where":
            dtype, (one, other) = self.together(*args[1:])
            return Value(f"({self.operand(args[0]).text} ? {one} : {other})", dtype)
        if name.startswith("as_"):
            dtype = np.dtype(name[3:])
            return Value(f"(({type_name(dtype)}){self.operand(args[0]).text})", dtype)
        given = ", ".join(self.expression(arg).text for arg in args)
        if name in TESTS:
            return Value(f"({name}({given}) != 0)", B1)
        if name in ON_WHOLE:
            self.helpers[name] = ON_WHOLE[name]
            return Value(f"{name}({given})", I8)
        dtype, _ = self.together(*args)
        if dtype.kind != "f" or (name not in LIBM and name not in OWN):
            raise self.refuse(x)
        suffix = "f" if dtype == F4 else ""
        if name in OWN:
            self.helpers[name + suffix] = own(name, len(args), type_name(dtype), suffix)
        return Value(f"{LIBM.get(name, name)}{suffix}({given})", dtype)
