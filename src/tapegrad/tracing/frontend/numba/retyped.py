"""The Python source of a numba function, changed to compute by numba's rules for numbers.

                numba                               in its Python
    s += x[i]   float32 and float64 --> float64     s = s + as_dtype("float64", x[i])
    n * n       wraps around at 64 bits             whole("mul", n, n)
    1.0 / x[0]  an error at 0                       divided("truediv", 1.0, x[0])
    x ** 0.5    NaN below 0                         power(True, x, 0.5)
    math.log(x) NaN below 0                         mathematical("log", x)
    round(x, 2) rounds x * 100.0                    rounded(x, 2)

numba provides the type of each expression (`inferred_types.py`). Expressions with the same result
in Python are unchanged.
"""

from __future__ import annotations

import ast
import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from tapegrad.tracing.frontend.numba import machine_arithmetic
from tapegrad.tracing.frontend.numba.bit_lengths import Sizes
from tapegrad.tracing.frontend.numba.inferred_types import Inferred, code_of, with_code

WIDE = {np.dtype(c) for c in ("int64", "float64", "complex128", "bool")}
_INT = np.dtype(np.int64)
_GROWING = {"add", "sub", "mul", "pow", "lshift", "rshift"}
_DIVIDING = {"truediv", "floordiv", "mod", "divmod"}
# Functions that are equivalent to operators.
_OPERATORS: dict[Any, str] = {pow: "pow", divmod: "divmod", operator.pow: "pow"}
_OPERATORS |= {getattr(operator, x): x for x in (*_GROWING, *_DIVIDING) if hasattr(operator, x)}
_UNCHANGED: set[Any] = {range, len, float, bool, complex, enumerate, zip, print}
_PREFIX = "_tapegrad_"
_NAMES = {_PREFIX + name: x for name, x in machine_arithmetic.HELPERS.items()}


class Different(Exception):
    """Why a function's Python source can't be changed to compute as numba does."""


def retyped(f: Any, known: Inferred) -> Callable[[FunctionType], FunctionType]:
    """A function that changes the Python source of `f.py_func`, or a copy of it with other globals,
    to compute as numba does."""
    rewriting = _Rewriting(_Rules(known, f), known, getattr(f, "locals", {}))
    if not rewriting.changes:
        return lambda python: python
    if known.tree is None:
        raise Different(
            "numba computes by rules of its own where Python has others, and its source, which "
            "says where, isn't found"
        )
    code = f.py_func.__code__
    code = code_of(rewriting.visit(known.tree), code, code.co_filename)
    return lambda python: with_code(python, code, _NAMES)


# ---- differences


class _Change(NamedTuple):
    """The change of an expression: a helper for each operand, one in the place of the operation,
    and one for the result. A helper is its name, with a constant argument if it has one."""

    operands: tuple[Any, ...] = ()
    function: Any = None
    result: Any = None

    def __bool__(self) -> bool:
        return any(x is not None for x in (*self.operands, self.function, self.result))


class _Rules:
    """The differences between numba's and Python's arithmetic, by the types of an expression."""

    def __init__(self, known: Inferred, f: Any) -> None:
        self._types, self._sizes = known.typemap, Sizes(known)
        ufuncs = importlib.import_module("numba.np.ufunc.ufuncbuilder")
        usual = "numpy" if isinstance(f, ufuncs.UFuncDispatcher) else "python"
        self._raises = f.targetoptions.get("error_model", usual) == "python"
        self.is_parallel = bool(f.targetoptions.get("parallel"))
        dtypes = {dtype_of_type(x) for x in known.typemap.values()} - {None}
        # Kinds of numbers of which some types are narrower than Python's, or unsigned.
        self._mixed = {_kind(x) for x in dtypes - WIDE}

    def change(self, x: Any, signature: Any, in_parallel: bool) -> _Change | None:
        """The change of expression `x`; None if it needs none."""
        found, raises = None, self._raises and not in_parallel
        if x.op in ("binop", "inplace_binop"):  # NumPy also casts to the dtype of the target
            function: Any = x.fn if x.op == "binop" else x.immutable_fn
            name, operands = function.__name__.strip("_"), [x.lhs, x.rhs]
            if x.op == "binop" or _is_scalar(signature.return_type):
                found = self._of_operator(name, operands, signature, raises)
        elif x.op == "unary":
            found = self._typed([x.value], signature, self._computed)
        elif x.op == "call":
            found = self._of_call(x, signature, raises)
        return found or None

    def _of_operator(
        self, name: str, operands: Sequence[Any], signature: Any, raises: bool
    ) -> _Change:
        args, made = signature.args, signature.return_type
        change = self._typed(operands, signature, self._computed)
        if len(operands) < 2 or not all(map(_is_scalar, args)):
            return change
        kinds, exponent = [_kind(dtype_of_type(t)) for t in args], self._sizes.constant(operands[1])
        if kinds == ["i", "i"] and name in _GROWING and dtype_of_type(made) == _INT:
            known = self._sizes.fit(name, *operands)
            return change if known else change._replace(function=("whole", name))
        if name in _DIVIDING and not exponent:
            return change._replace(function=("divided" if raises else "divided_as_numpy", name))
        if name == "pow" and kinds[0] == "f" and not (type(exponent) is int and exponent >= 0):
            return change._replace(function=("power", raises))
        return change

    def _of_call(self, x: Any, signature: Any, raises: bool) -> _Change:
        called = self._types.get(x.func.name)
        function = getattr(called, "typing_key", None)
        if isinstance(getattr(function, "__self__", None), (_random(), np.random.RandomState)):
            name = getattr(function, "__name__", "")
            raise Different(
                f"draws by {name} from numba's own generator, which Python doesn't "
                "have: pass it a np.random.Generator"
            )
        operands = [*x.args, *dict(x.kws).values()]
        if type(called).__name__ == "NumberClass" or function in _UNCHANGED:
            return _Change()
        if function is int:
            return _Change(result=("bounded",))
        if function in _OPERATORS and len(operands) == 2:
            return self._of_operator(_OPERATORS[function], operands, signature, raises)
        if function is round and len(operands) > 1:
            return _Change(function=("rounded",))
        if type(called).__name__ == "Dispatcher":
            return self._typed(operands, signature, self._computed)._replace(result=None)
        name = getattr(function, "__name__", "")
        ufunc = function if isinstance(function, np.ufunc) else None
        if getattr(function, "__module__", "") == "math" and _is_float(signature.return_type):
            ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc):
            return self._typed(operands, signature, self._widened)
        change = self._typed(operands, signature, self._computed)
        return change if ufunc is function else change._replace(function=("mathematical", name))

    def _typed(self, operands: Sequence[Any], signature: Any, wanted: Any) -> _Change:
        """The casts of operands and result to numba's types, where Python's types differ."""
        own, found = [self._types.get(x.name) for x in operands], []
        are_truths = {dtype_of_type(x) for x in own} == {np.dtype(bool)}  # True + True
        if not (self._mixed or are_truths):
            return _Change()
        for k, (x, kind) in enumerate(zip(operands, own, strict=True)):
            dtype = dtype_of_type(kind)
            become = None if dtype is None else wanted(k, dtype, own, signature)
            is_known = become is None or not _is_number(kind) or self._sizes.is_constant(x)
            is_same = is_known or not (
                {_kind(dtype), _kind(become)} & self._mixed or (are_truths and dtype != become)
            )
            found.append(None if is_same else ("as_dtype", str(become)))
        made = signature.return_type
        dtype = dtype_of_type(made)
        result = _is_number(made) and _kind(dtype) in self._mixed
        return _Change(tuple(found), None, ("as_dtype", str(dtype)) if result else None)

    def _computed(self, k: int, dtype: Any, own: Sequence[Any], signature: Any) -> Any:
        """The dtype in which numba uses an operand."""
        args, made = signature.args, dtype_of_type(signature.return_type)
        if _is_scalar(own[k]) and k < len(args) and _is_scalar(args[k]):
            return dtype_of_type(args[k])
        if made == np.bool_:  # a comparison of arrays
            return np.result_type(*[x for x in map(dtype_of_type, own) if x is not None])
        return made

    def _widened(self, k: int, dtype: Any, own: Sequence[Any], signature: Any) -> Any:
        """The dtype in which a function computes: that of its result, if it is wider and of the
        same kind."""
        made = dtype_of_type(signature.return_type)
        return made if _kind(made) == _kind(dtype) and made.itemsize > dtype.itemsize else None


def _random() -> Any:
    import random  # numba has imported it; a program without numba may not have

    return random.Random


def _is_scalar(kind: Any) -> bool:
    types = importlib.import_module("numba.core.types")
    kind = kind.type if isinstance(kind, types.Optional) else kind
    return isinstance(kind, (types.Number, types.Boolean))


def _is_number(kind: Any) -> bool:
    """Whether a type is a number or an array of numbers."""
    return _is_scalar(kind) or hasattr(kind, "ndim")


def _is_float(kind: Any) -> bool:
    return _is_scalar(kind) and _kind(dtype_of_type(kind)) == "f"


def _kind(dtype: Any) -> str:
    return "" if dtype is None else dtype.kind.replace("u", "i")


def dtype_of_type(kind: Any) -> Any:
    """The dtype of a number, or of the items of an array or container."""
    types = importlib.import_module("numba.core.types")
    while not isinstance(kind, (types.Number, types.Boolean)):
        if isinstance(kind, types.BaseTuple):
            found = {dtype_of_type(x) for x in kind.types} - {None}
            return next((x for x in found if x not in WIDE), next(iter(found), None))
        # an array, its method, or an optional type
        held = getattr(kind, "dtype", getattr(kind, "this", getattr(kind, "type", None)))
        if held is None or held is kind:
            return None
        kind = held
    return np.dtype("?" if isinstance(kind, types.Boolean) else str(types.unliteral(kind)))


# ---- the changed source


class _Rewriting(ast.NodeTransformer):
    """A transformer of a function's syntax tree that applies the changes at its nodes."""

    def __init__(self, rules: _Rules, known: Inferred, locals_: dict[str, Any]) -> None:
        ir = importlib.import_module("numba.core.ir")
        found: dict[Any, Any] = {}
        self._declared = {k: str(dtype_of_type(x)) for k, x in locals_.items() if _is_scalar(x)}
        inside = set(_in_parallel(known)) if rules.is_parallel else set()
        for x, signature in known.calltypes.items():
            node = known.node(x) if type(x) is ir.Expr else None
            if not signature or type(x) is not ir.Expr:
                continue
            if known.tree and not isinstance(node, _SYNTAX.get(x.op, ())):
                continue  # a truth test, or code of a function that is followed itself
            change = rules.change(x, signature, node in inside)
            if isinstance(node, ast.Compare) and len(node.ops) > 1 and change:
                raise Different(f"{_place(node)} compares several numbers at once, of {_MIXED}")
            if node is not None and found.setdefault(node, change) != change:
                raise Different(f"{_place(node)} is of {_MIXED}")
            found[node] = found.get(node) or change
        self.changes = {node: change for node, change in found.items() if change}

    def _helped(self, helper: Any, *nodes: ast.expr) -> ast.expr:
        """A call of a helper, or the node itself if there is none."""
        if helper is None:
            return nodes[0]
        name, *constant = helper
        args = [*map(ast.Constant, constant), *nodes]
        return ast.Call(ast.Name(_PREFIX + name, ast.Load()), args, [])

    def _changed(self, node: Any, operands: Sequence[Any], made: Callable[..., Any]) -> Any:
        change = self.changes.get(node)
        if change is None:
            return node
        helpers = (*change.operands, *[None] * len(operands))
        given = [self._helped(h, x) for h, x in zip(helpers, operands, strict=False)]
        found = self._helped(change.function, *given) if change.function else made(*given)
        return _at(self._helped(change.result, found), node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        operands = (node.left, node.right)
        return self._changed(node, operands, lambda x, y: ast.BinOp(x, node.op, y))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self._changed(node, [node.operand], lambda x: ast.UnaryOp(node.op, x))

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        operands = (node.left, *node.comparators)
        return self._changed(node, operands, lambda x, *ys: ast.Compare(x, node.ops, list(ys)))

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        names, operands = [x.arg for x in node.keywords], [x.value for x in node.keywords]
        if node in self.changes and any(isinstance(x, ast.Starred) for x in node.args):
            raise Different(f"{_place(node)} is called with {_MIXED}")

        def made(*xs: Any) -> ast.Call:
            given, rest = xs[: len(node.args)], xs[len(node.args) :]
            return ast.Call(node.func, list(given), [*map(ast.keyword, names, rest)])

        return self._changed(node, (*node.args, *operands), made)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if node not in self.changes:
            return node
        if not isinstance(node.target, ast.Name):
            return self._in_place(node)
        read = _at(ast.Name(node.target.id, ast.Load()), node.target)
        found = self._changed(node, (read, node.value), lambda x, y: ast.BinOp(x, node.op, y))
        return self._declared_ones(_at(ast.Assign([node.target], found), node))

    def _in_place(self, node: ast.AugAssign) -> Any:
        """`x[i] += y`: NumPy's numbers wrap around, and are cast to the array's dtype."""
        change = self.changes[node]
        value = self._helped((*change.operands, None, None)[1], node.value)
        if change.function and change.function[0] == "divided":
            value = self._helped(("divisor",), value)
        return _at(ast.AugAssign(node.target, node.op, value), node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        return self._declared_ones(node)

    def _declared_ones(self, node: ast.Assign) -> Any:
        """Cast variables whose types `locals` declares."""
        for target in node.targets:
            dtype = self._declared.get(getattr(target, "id", ""))
            if dtype is not None:
                node.value = _at(self._helped(("as_dtype", dtype), node.value), node.value)
        return node


_SYNTAX: dict[str, Any] = {
    "binop": (ast.BinOp, ast.Compare),
    "inplace_binop": ast.AugAssign,
    "unary": ast.UnaryOp,
    "call": ast.Call,
}
_MIXED = "several types in numba, of which Python has one"


def _place(node: Any) -> str:
    return f"what is in line {node.lineno}"


def _at(node: Any, like: Any) -> Any:
    """A new node with the position of another one."""
    for x in ast.walk(node):
        if "lineno" in x._attributes and not hasattr(x, "lineno"):
            ast.copy_location(x, like)
    return node


def _in_parallel(known: Inferred) -> Iterator[Any]:
    """The nodes in parallel loops, where no operation raises an error."""
    for loop in ast.walk(known.tree) if known.tree else ():
        if isinstance(loop, ast.For) and "prange" in ast.unparse(loop.iter):
            yield from ast.walk(loop)
