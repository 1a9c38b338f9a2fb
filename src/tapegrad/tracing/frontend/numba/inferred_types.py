"""The types that numba infers for each expression of a function, by its place in the source.

numba reports the line of each expression, and a line may have several. So the function is parsed,
each node of its syntax tree is put on a line of its own, and numba infers the types of that; no
machine code is made of it.

    s += x[i] * 0.5   -->  1: s   2: x   3: i   4: x[i]   5: x[i] * 0.5   6: s += ...
"""

from __future__ import annotations

import ast
import copy
import importlib
import linecache
import warnings
from collections.abc import Iterator
from functools import cache, lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

_FILE = "<numbered>"
_ANNOTATIONS = annotations.compiler_flag  # of `from __future__ import annotations`


class Inferred(NamedTuple):
    """numba's type inference of a function. Without source, `tree` is None and `nodes` is empty."""

    typemap: dict[str, Any]
    blocks: dict[Any, Any]
    calltypes: dict[Any, Any]
    tree: Any
    nodes: list[ast.AST]  # by line

    def node(self, x: Any) -> Any:
        """The syntax node of an expression in numba's IR; None for inlined code."""
        known = x.loc.filename == _FILE and 0 < x.loc.line <= len(self.nodes)
        return self.nodes[x.loc.line - 1] if known else None

    def statements(self) -> Iterator[Any]:
        for block in self.blocks.values():
            yield from block.body


def inferred(f: Any, kinds: Any) -> Inferred:
    """numba's type inference of a function for arguments of these types."""
    function = f.py_func
    tree = syntax_of(function)
    nodes: list[ast.AST] = []
    if tree is not None:
        nodes = [x for x in ast.walk(tree) if hasattr(x, "lineno")]
        numbered = copy.deepcopy(tree)
        places: list[Any] = [x for x in ast.walk(numbered) if hasattr(x, "lineno")]
        for k, x in enumerate(places):
            x.lineno = x.end_lineno = k + 1
        for x in places:  # numba reports a method call at the line of its name
            if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute):
                x.func.lineno = x.func.end_lineno = x.lineno
        function = with_code(function, code_of(numbered, function.__code__, _FILE), {})
    options = {k: v for k, v in f.targetoptions.items() if k not in ("cache", "parallel")}
    locals_ = getattr(f, "locals", {})
    again = importlib.import_module("numba").jit(pipeline_class=_types_only(), **options)(function)
    again.locals.update(locals_)
    again._compiler.locals = again.locals
    try:
        again.compile(tuple(kinds))
    except _Known as known:
        state = known.state
        return Inferred(state.typemap, state.func_ir.blocks, state.calltypes, tree, nodes)
    raise AssertionError(f"numba infers no types of {function.__name__}")


class _Known(Exception):
    """The types are known, and compilation stops."""

    def __init__(self, state: Any) -> None:
        self.state = state


@cache
def _types_only() -> Any:
    """numba's compiler up to type inference."""
    compiler = importlib.import_module("numba.core.compiler")
    machinery = importlib.import_module("numba.core.compiler_machinery")
    passes = importlib.import_module("numba.core.typed_passes")

    @machinery.register_pass(mutates_CFG=False, analysis_only=True)
    class Stop(machinery.AnalysisPass):  # type: ignore[name-defined]
        _name = "tapegrad_stop"

        def __init__(self) -> None:
            super().__init__()

        def run_pass(self, state: Any) -> bool:
            raise _Known(state)

    class TypesOnly(compiler.CompilerBase):  # type: ignore[name-defined]
        def define_pipelines(self) -> list[Any]:
            made = machinery.PassManager("types")
            untyped = compiler.DefaultPassBuilder.define_untyped_pipeline(self.state)
            made.passes.extend(untyped.passes)
            made.add_pass(passes.NopythonTypeInference, "types")
            made.add_pass(Stop, "no more")
            made.finalize()
            return [made]

    return TypesOnly


# ---- source and bytecode


def syntax_of(function: FunctionType) -> Any:
    """The syntax tree that a function's code was compiled from; None if it isn't found."""
    code = function.__code__
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    functions, imports = _functions(source)
    for found in functions.get((code.co_firstlineno, code.co_name), ()):
        node = copy.deepcopy(found)
        node.imports = imports
        node.args.defaults, node.args.kw_defaults = [], [None] * len(node.args.kwonlyargs)
        if isinstance(node, ast.FunctionDef):
            node.decorator_list, node.returns = [], None
        for parameter in ast.walk(node.args):
            if isinstance(parameter, ast.arg):
                parameter.annotation = None
        if _is_same(code_of(node, code, code.co_filename), code):
            return node
    return None


@lru_cache(64)
def _functions(source: str) -> tuple[dict[tuple[int, str], list[Any]], list[Any]]:
    """The functions in a source text, by first line and name, and its imports."""
    found: dict[tuple[int, str], list[Any]] = {}
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError):
        return found, []
    for x in ast.walk(module):
        if isinstance(x, (ast.FunctionDef, ast.Lambda)):
            decorators = getattr(x, "decorator_list", [])
            place = min(y.lineno for y in (x, *decorators)), getattr(x, "name", "<lambda>")
            found.setdefault(place, []).append(x)
    return found, list(_imports(module.body))


def _imports(statements: list[Any]) -> Iterator[Any]:
    """The imports of a module. From Python 3.11 on, attributes of imported names are called by
    other bytecode."""
    for x in statements:
        if isinstance(x, (ast.Import, ast.ImportFrom)):
            yield x
        elif not isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody", "handlers"):
                held = getattr(x, part, [])
                yield from _imports(held if isinstance(held, list) else [])


def code_of(node: Any, like: CodeType, file: str) -> Any:
    """The code of a function's syntax, compiled within a function of its free variables."""
    names = [ast.arg(x, lineno=1, col_offset=0) for x in like.co_freevars]
    within: Any = ast.parse("def within(): pass").body[0]
    within.args.args = names
    within.body = [node if isinstance(node, ast.FunctionDef) else ast.Expr(node)]
    if isinstance(node, ast.FunctionDef) and node.name not in like.co_freevars:
        within.body.insert(0, ast.Global([node.name]))  # it may call itself
    module = ast.fix_missing_locations(ast.Module([*node.imports, within], []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flags = like.co_flags & _ANNOTATIONS
        waiting = [compile(module, file, "exec", flags, dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        if code.co_name == like.co_name:
            return code
        waiting += [x for x in code.co_consts if isinstance(x, CodeType)]
    return None


def _is_same(x: Any, y: CodeType) -> bool:
    parts = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    if x is None or any(getattr(x, name) != getattr(y, name) for name in parts):
        return False
    return len(x.co_consts) == len(y.co_consts) and all(
        map(_is_same_constant, x.co_consts, y.co_consts)
    )


def _is_same_constant(x: Any, y: Any) -> bool:
    if isinstance(x, CodeType) and isinstance(y, CodeType):
        return _is_same(x, y)
    return type(x) is type(y) and repr(x) == repr(y)


def with_code(function: FunctionType, code: CodeType, names: dict[str, Any]) -> FunctionType:
    """The function with other code for the same variables, and additional globals."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    made = FunctionType(
        code,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        tuple([cells[x] for x in code.co_freevars]),
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made
