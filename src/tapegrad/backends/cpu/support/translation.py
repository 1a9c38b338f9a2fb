"""From the source of a kernel to LLVM's instructions, in one pass over its syntax tree.

Kernels are a small subset of Python: loops over ranges, assignments to numbers and elements, `if`,
and calls of known functions. No variable changes its type, and each is assigned before it is read,
so an expression's type follows from those of its operands. numba defines which types operators and
functions take, and what they do. Its own front end infers types over all of a function's bytecode:
the same results, several times as slowly.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections import Counter
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from tapegrad.backends.cpu.support.arrays import (
    BYTE,
    WORD,
    FixedArray,
    column_part,
    panel,
    part,
    reshaped,
    row_part,
    ways,
    word,
)
from tapegrad.backends.cpu.support.functions import Loops, run_shared
from tapegrad.backends.cpu.support.lines import LineNumbers
from tapegrad.backends.cpu.support.operators import TARGET, TYPING, WRAPPING, implementation
from tapegrad.backends.cpu.support.outline import (
    MAX_UNROLLED,
    SMALL_LOOP,
    is_rolled,
    is_shared,
    keep_rolled,
    kept_axes,
    rounds,
    taken_apart,
)
from tapegrad.backends.cpu.support.syntax import OPERATORS, nodes_of


class Translator:
    """The translation of one function into a module: a kernel, or a large loop of one. Its
    instructions have the numbers of the source's `lines` where these are given."""

    def __init__(
        self, names: dict[str, Any], function: ir.Function, lines: LineNumbers | None = None
    ) -> None:
        self.lines, self.scope = lines, None if lines is None else lines.of(function)
        self.names = names  # globals of the kernel
        self.entry = function.append_basic_block("entry")
        self.start = function.append_basic_block("body")
        self.builder = ir.IRBuilder(self.start)
        # Numbers that never change; arrays, as parts of others from an element on; the addresses of
        # variables: each with its type.
        self.values: dict[str, tuple[Any, Any]] = {}
        self.arrays: dict[str, tuple[Any, int, Any]] = {}
        self.places: dict[str, tuple[Any, Any]] = {}
        self.pointers: dict[str, Any] = {}  # the addresses of renamed arrays
        self.loops: Loops | None = None  # loops that are functions
        self.apart: set[Any] = set()  # arrays that don't overlap
        self.total: Counter[str] = Counter()  # the number of uses of each name in the kernel

    def translate(self, tree: ast.FunctionDef, kinds: tuple[Any, ...]) -> None:
        """Fill the function with the kernel's code; `kinds` are the types of its parameters."""
        self.at(tree)
        convention, packer = TARGET.call_conv, TARGET.get_arg_packer(kinds)
        given = packer.from_arguments(self.builder, convention.get_arguments(self.builder.function))
        for parameter, value, kind in zip(tree.args.args, given, kinds, strict=True):
            self.take(parameter.arg, value, kind)
        nodes = nodes_of(tree)
        self.total = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        if sum(rounds(statement) > SMALL_LOOP for statement in tree.body) > 1:
            self.loops = Loops(nodes)
        self.apart.update(
            x for x, kind in zip(given, kinds, strict=True) if isinstance(kind, FixedArray)
        )
        self.body(tree.body)
        self.finish()

    def take(self, name: str, value: Any, kind: Any) -> None:
        """Bind a name to a number that never changes, or to an array."""
        if isinstance(kind, FixedArray):
            self.arrays[name] = value, 0, kind
        else:
            self.values[name] = value, kind

    def finish(self) -> None:
        with self.builder.goto_block(self.entry):  # it allocates the variables
            self.builder.branch(self.start)

    # ---- statements

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.at(statement)
            getattr(self, f"_{type(statement).__name__.lower()}")(statement)

    def at(self, statement: ast.stmt) -> None:
        """Note that the next instructions are of this statement."""
        if self.lines is not None:
            line = getattr(statement, "source_line", statement.lineno)
            self.builder.debug_metadata = self.lines.at(line, self.scope)

    def _assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            self.rename(target.elts, statement.value.elts)
            return
        if isinstance(target, ast.Name) and self.is_view(statement.value):
            self.arrays[target.id] = self.view(statement.value)
            return
        value, kind = self.expression(statement.value)
        if isinstance(target, ast.Tuple):
            parts = cgutils.unpack_tuple(self.builder, value, len(target.elts))
            for place, x, of in zip(target.elts, parts, kind, strict=True):
                self.store(place, x, of)
        else:
            self.store(target, value, kind)

    def rename(self, targets: list[Any], values: list[ast.expr]) -> None:
        """`a, b = b, a`, of arrays. Their addresses are variables, which each round loads first
        (`find`)."""
        found = [self.expression(x) for x in values]
        for target, (address, kind) in zip(targets, found, strict=True):
            name = target.id
            if name not in self.pointers:
                with self.builder.goto_block(self.entry):
                    self.pointers[name] = self.builder.alloca(address.type, name=name)
            self.builder.store(address, self.pointers[name])
            self.arrays[name] = address, 0, kind
        self.found([target.id for target in targets])

    def find(self, loop: ast.For | ast.While) -> None:
        """Load the addresses of the arrays that a loop renames."""
        for statement in loop.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
                targets: Any = statement.targets[0]
                names = [x.id for x in targets.elts if x.id in self.pointers]
                for name in names:
                    address = self.builder.load(self.pointers[name])
                    self.arrays[name] = address, 0, self.arrays[name][2]
                self.found(names)

    def found(self, names: list[str]) -> None:
        """Note that these arrays overlap no other."""
        self.apart.update(self.arrays[name][0] for name in names)

    def _augassign(self, statement: ast.AugAssign) -> None:
        target = statement.target
        if isinstance(target, ast.Subscript):  # compute its index once
            place, array = self.address(target)
            before = self.load(place, array)
        else:
            before = self.expression(target)
        after, kind = self.call(
            OPERATORS[type(statement.op)], [before, self.expression(statement.value)]
        )
        if isinstance(target, ast.Subscript):
            self.put(place, array, after, kind)
        else:
            self.store(target, after, kind)

    def _expr(self, statement: ast.Expr) -> None:
        self.expression(statement.value)

    def _return(self, statement: ast.Return) -> None:
        assert statement.value is not None
        value, kind = self.expression(statement.value)
        value = TARGET.cast(self.builder, value, kind, types.int64)
        TARGET.call_conv.return_value(self.builder, value)

    def _if(self, statement: ast.If) -> None:
        assert not statement.orelse
        then = self.builder.append_basic_block("then")
        after = self.builder.append_basic_block("after")
        self.builder.cbranch(self.truth(statement.test), then, after)
        self.builder.position_at_end(then)
        self.body(statement.body)
        if not self.builder.block.is_terminated:
            self.builder.branch(after)
        self.builder.position_at_end(after)

    def _while(self, loop: ast.While) -> None:
        builder = self.builder
        head, body, after = (builder.append_basic_block(n) for n in ("head", "loop", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(self.truth(loop.test), body, after)
        builder.position_at_end(body)
        self.find(loop)
        self.body(loop.body)
        self.at(loop)
        builder.branch(head)
        builder.position_at_end(after)
        self.find(loop)

    def _for(self, loop: ast.For) -> None:
        if is_shared(loop):
            run_shared(loop, self)
        elif self.loops is None or not self._call_loop(loop):
            self._loop(loop)

    def _loop(self, loop: ast.For) -> None:
        assert isinstance(loop.iter, ast.Call) and isinstance(loop.target, ast.Name)
        bounds = [self.whole(x) for x in loop.iter.args]
        start, step = WORD(0), 1
        if len(bounds) == 3:
            step = ast.literal_eval(loop.iter.args[2])
        if len(bounds) > 1:
            start = bounds[0]
        stop = bounds[min(1, len(bounds) - 1)]
        builder, before = self.builder, self.builder.block
        head, body, after = (builder.append_basic_block(n) for n in ("head", "loop", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        k = builder.phi(WORD, loop.target.id)
        k.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<" if step > 0 else ">", k, stop), body, after)
        builder.position_at_end(body)
        self.values[loop.target.id] = k, types.int64
        self.find(loop)
        self.body(loop.body)
        self.at(loop)
        del self.values[loop.target.id]
        k.add_incoming(builder.add(k, WORD(step), flags=("nsw",)), builder.block)
        back = builder.branch(head)
        if rounds(loop) > MAX_UNROLLED or any(map(is_rolled, loop.iter.args)):
            keep_rolled(back)
        builder.position_at_end(after)
        self.find(loop)

    def _call_loop(self, loop: ast.For) -> bool:
        """Call the function of a large loop. False if the loop has none."""
        assert self.loops is not None
        outline = self.loops.outline(loop, self)
        if outline is None:
            return False
        function, kinds = self.loops.function(loop, outline, self)
        given = [
            self.builder.gep(array, [WORD(start)], inbounds=True) for array, start in outline.arrays
        ]
        given += [self.variable(name)[0] for name in outline.read]
        for name, kind in zip(outline.changed, kinds, strict=True):
            given.append(self.builder.bitcast(self.place(name, kind), BYTE.as_pointer()))
        self.builder.call(function, given)
        return True

    # ---- variables and elements

    def store(self, target: ast.expr, value: Any, kind: Any) -> None:
        """Assign to a variable or an element."""
        if isinstance(target, ast.Subscript):
            place, array = self.address(target)
            self.put(place, array, value, kind)
            return
        assert isinstance(target, ast.Name)
        name, kind = target.id, types.unliteral(kind)
        assert name not in self.values, name  # parameters and indices are never assigned
        if isinstance(kind, FixedArray):
            assert name not in self.arrays, name
            self.arrays[name] = value, 0, kind
            return
        place = self.place(name, kind)
        known = self.places[name][1]
        wraps = isinstance(known, types.Integer) and isinstance(kind, types.Integer)
        if known != kind and not wraps:
            raise TypeError(f"{name} is of type {known}, and is assigned a {kind}")
        self.builder.store(TARGET.cast(self.builder, value, kind, known), place)

    def place(self, name: str, kind: Any) -> Any:
        """The address of a variable. A new one has the type `kind`."""
        if name not in self.places:
            with self.builder.goto_block(self.entry):
                place = self.builder.alloca(TARGET.get_value_type(kind), name=name)
            self.places[name] = place, kind
        return self.places[name][0]

    def address(self, element: ast.Subscript) -> tuple[Any, FixedArray]:
        """The address of an element, or of the first element of a part; and its type, an array."""
        array, start, kind = self.array(element.value)
        index = element.slice
        rest, distance = taken_apart(index, kind.strides)
        offset = None
        for entry, stride in rest:
            step, at = word(self.builder, stride), self.whole(entry)
            at = at if stride == 1 else self.builder.mul(at, step, flags=("nsw",))
            offset = at if offset is None else self.builder.add(offset, at, flags=("nsw",))
        if start + distance or offset is None:
            at = WORD(start + distance)
            offset = at if offset is None else self.builder.add(offset, at, flags=("nsw",))
        array = self.builder.gep(array, [offset], inbounds=True)
        axes = kept_axes(index, len(kind.shape))
        shape, strides = (tuple([x[a] for a in axes]) for x in (kind.shape, kind.strides))
        return array, FixedArray(kind.dtype, shape, strides)

    def load(self, place: Any, array: FixedArray) -> tuple[Any, Any]:
        if array.shape:
            return place, array
        return TARGET.unpack_value(self.builder, array.dtype, place), array.dtype

    def put(self, place: Any, array: FixedArray, value: Any, kind: Any) -> None:
        value = TARGET.cast(self.builder, value, kind, array.dtype)
        TARGET.pack_value(self.builder, array.dtype, value, place)

    # ---- expressions: a value and its type

    def expression(self, x: ast.expr) -> tuple[Any, Any]:
        return getattr(self, f"_{type(x).__name__.lower()}")(x)

    def whole(self, x: ast.expr) -> Any:
        """An integer, as a word."""
        value, kind = self.expression(x)
        return TARGET.cast(self.builder, value, kind, types.int64)

    def truth(self, x: ast.expr) -> Any:
        value, kind = self.expression(x)
        return TARGET.cast(self.builder, value, kind, types.boolean)

    def constant(self, x: Any) -> tuple[Any, Any]:
        kind = types.unliteral(TYPING.resolve_value_type(x))
        return TARGET.get_constant_generic(self.builder, kind, x), kind

    def _constant(self, x: ast.Constant) -> tuple[Any, Any]:
        return self.constant(x.value)

    def _name(self, x: ast.Name) -> tuple[Any, Any]:
        if x.id in self.arrays:
            array, start, kind = self.arrays[x.id]
            if start:
                array = self.builder.gep(array, [WORD(start)], inbounds=True)
            return array, kind
        return self.variable(x.id)

    def variable(self, name: str) -> tuple[Any, Any]:
        """The value of a number, by its name."""
        if name in self.places:
            place, kind = self.places[name]
            return self.builder.load(place), kind
        if name in self.values:
            return self.values[name]
        return self.constant(self.names[name])

    def array(self, x: ast.expr) -> tuple[Any, int, FixedArray]:
        """An array: its base, the offset from that, and its type."""
        if isinstance(x, ast.Name):
            return self.arrays[x.id]
        if self.is_view(x):
            return self.view(x)
        value, kind = self.expression(x)
        return value, 0, kind

    def _subscript(self, x: ast.Subscript) -> tuple[Any, Any]:
        return self.load(*self.address(x))

    def _attribute(self, x: ast.Attribute) -> tuple[Any, Any]:
        value, kind = self.expression(x.value)  # x.T is the same memory with other strides
        return value, FixedArray(kind.dtype, kind.shape[::-1], kind.strides[::-1])

    def _binop(self, x: ast.BinOp) -> tuple[Any, Any]:
        operands = [self.expression(x.left), self.expression(x.right)]
        return self.call(OPERATORS[type(x.op)], operands)

    def _unaryop(self, x: ast.UnaryOp) -> tuple[Any, Any]:
        if isinstance(x.operand, ast.Constant) and isinstance(x.op, ast.USub):
            return self.constant(ast.literal_eval(x))
        return self.call(OPERATORS[type(x.op)], [self.expression(x.operand)])

    def _compare(self, x: ast.Compare) -> tuple[Any, Any]:
        (op,), (right,) = x.ops, x.comparators
        return self.call(OPERATORS[type(op)], [self.expression(x.left), self.expression(right)])

    def _boolop(self, x: ast.BoolOp) -> tuple[Any, Any]:
        """`and` and `or` of conditions. All are computed: nothing depends on the order."""
        join = self.builder.and_ if isinstance(x.op, ast.And) else self.builder.or_
        return functools.reduce(join, map(self.truth, x.values)), types.boolean

    def _call(self, x: ast.Call) -> tuple[Any, Any]:
        assert isinstance(x.func, ast.Name)
        function = self.function(x.func)
        if self.is_view(x):
            array, start, kind = self.view(x)
            return self.builder.gep(array, [WORD(start)], inbounds=True), kind
        if function is panel:
            return self._panel(*x.args)
        if function is min:  # a loop's bound
            a, b = map(self.whole, x.args)
            return self.builder.select(self.builder.icmp_signed("<", a, b), a, b), types.int64
        operands = [self.expression(arg) for arg in x.args]
        if function in (row_part, column_part):  # the part's type holds the count
            count = getattr(x.args[-1], "id", None) or ast.literal_eval(x.args[-1])
            operands[-1] = operands[-1][0], types.literal(count)
        return self.call(function, operands)

    def _panel(self, x: ast.expr, start: Any, along: Any, shape: Any) -> tuple[Any, Any]:
        """`panel(array, start, along, shape)`."""
        place, _ = self.address(ast.Subscript(x, start, ast.Load()))
        kind = self.array(x)[2]
        strides = ways(kind.strides, ast.literal_eval(along))
        return place, FixedArray(kind.dtype, ast.literal_eval(shape), strides)

    def function(self, name: ast.Name) -> Any:
        return self.names.get(name.id, getattr(builtins, name.id, None))

    def is_view(self, x: ast.expr) -> bool:
        """Whether `x` is a call of `reshaped` or `part`."""
        called = isinstance(x, ast.Call) and isinstance(x.func, ast.Name)
        return called and self.function(x.func) in (reshaped, part)  # type: ignore[attr-defined]

    def view(self, x: Any) -> tuple[Any, int, FixedArray]:
        """`reshaped(array, shape)` and `part(array, start, shape)`."""
        array, start, kind = self.array(x.args[0])
        *further, shape = x.args[1:]
        for more in further:
            if isinstance(more, ast.Constant):
                start += ast.literal_eval(more)
            else:
                array = self.builder.gep(array, [self.whole(more)], inbounds=True)
        return array, start, FixedArray(kind.dtype, ast.literal_eval(shape))

    def call(self, function: Any, operands: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """The result of a function or an operator for these operands."""
        emit, signature = implementation(function, tuple(kind for _, kind in operands))
        wraps = isinstance(signature.return_type, types.Integer) and function in WRAPPING
        args = [
            TARGET.cast(self.builder, value, kind, signature.return_type if wraps else wanted)
            for (value, kind), wanted in zip(operands, signature.args, strict=True)
        ]
        return emit(self.builder, args), signature.return_type
