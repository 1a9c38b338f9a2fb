"""The entry of a compiled variant: from the user's arguments to the kernels and back.

For arguments made of tuples, lists, dicts, arrays and numbers a function is generated. It unpacks
the arguments, checks whatever the kernels' own argument check doesn't, and builds the results. So
no tree is traversed at a call. Other arguments go through `call_flat`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tapegrad.backends.host import HOST
from tapegrad.backends.numpy.play import checked_inputs, run, stale
from tapegrad.backends.source.arguments import Mark
from tapegrad.backends.source.driver import (
    INDENT,
    NUMBERS,
    OUT_OF_RANGE,
    Driver,
    Executable,
    Variable,
    dtypes,
    numpy_name,
)
from tapegrad.backends.source.names import Scope
from tapegrad.checking import debug
from tapegrad.core.arrays import is_half
from tapegrad.core.handlers import let_through
from tapegrad.core.request import Request, leaf_key
from tapegrad.core.trees import array_leaves, can_be_written, is_number
from tapegrad.errors import InternalError, TapegradError
from tapegrad.ir.tape import Tape, Var
from tapegrad.observe.guards.state import State
from tapegrad.runtime.cache import place_of
from tapegrad.runtime.transformations import Derivation
from tapegrad.runtime.unpacking import NotSimple, Unpacker, fits, is_plain, own, written_as
from tapegrad.tracing.draws.recorded import DrawnValues, TypeChanged
from tapegrad.tracing.memory.aliasing import check_places


class Miss(Exception):
    """This entry doesn't answer these arguments. Another one may, or a new trace."""


class OutOfRange(Miss):
    """The tape must be played: numbers are so large or small that the order of sums matters."""


class Scratch(threading.local):
    """Scratch memory of one program, kept between calls, separately for each thread.

    A call takes it out of `spare`, and puts it back when it returns. So a call in the middle of
    another one in the same thread, from a signal handler or a finalizer, finds none and makes its
    own.
    """

    def __init__(self, sizes: Sequence[tuple[str, int, np.dtype]]) -> None:
        self.sizes = sizes
        self.spare: list[tuple[np.ndarray, ...]] = []

    def new(self) -> tuple[np.ndarray, ...]:
        return tuple(np.empty(size, dtype) for _, size, dtype in self.sizes)


@functools.cache
def keep_freed_memory() -> None:
    """Make calls reuse the memory of earlier results.

    glibc returns large blocks to the system when they are freed, and each page of a new one costs a
    microsecond; with several threads, ten. It stops doing so for blocks up to the size of the
    largest that the program has freed, but at most 32 MB. So a block of nearly that size is made
    and freed. Nothing is written to it, so it takes no memory.
    """
    with contextlib.suppress(MemoryError):
        np.empty(31 << 20, np.uint8)


class Text:
    """The source of a function around a driver's lines, and the names that it uses.

    `scope` provides unique names for everything but the driver's own names; `named` binds a name to
    a value.
    """

    def __init__(self, driver: Driver, names: dict[str, Any]) -> None:
        keep_freed_memory()
        self.driver = driver
        self.names = names
        self.scope = Scope.after([*self.driver.words(), *self.names])
        self.scratch = Scratch(self.driver.scratch)
        self._given: dict[tuple[str, int], str] = {}
        self.miss = self.named("Miss", Miss)

    def named(self, wanted: str, value: Any) -> str:
        """The name of this value in the source."""
        key = wanted, id(value)
        if key not in self._given:
            name = self._given[key] = self.scope.fresh(wanted)
            self.names[name] = value
        return self._given[key]

    def missed(self, condition: str) -> list[str]:
        """Lines that raise `Miss` if a condition holds."""
        return [f"if {condition}:", f"{INDENT}raise {self.miss}"]

    def unfit(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> str:
        """The condition that an array isn't what a kernel takes."""
        return f"not {self.named('fits', fits)}({name}, {shape}, {self.named('dtype', dtype)})"

    def of_layout(self, name: str, given: str, key: Any, dtype: np.dtype) -> list[str]:
        """Lines that convert an array with the layout `key` to a row-major one."""
        lines = self.missed(
            f"{self.named('leaf_key', leaf_key)}({given}) != {self.named('key', key)}"
        )
        kind, require = self.named("dtype", dtype), self.named("require", np.require)
        return [*lines, f"{name} = {require}({given}, {kind}, ['C', 'A', 'E'])"]

    def calling(self, result: str) -> list[str]:
        """The driver's lines, with scratch memory, up to the return of `result`."""
        driver = self.driver
        lines = [*driver.lines, f"return {result}"]
        if not driver.scratch:
            return lines
        memories = "".join(f"{name}, " for name, _, _ in driver.scratch)
        scratch = self.named("scratch", self.scratch)
        if driver.calls:  # a user's function may keep the memory that it is passed
            return [f"{memories}= {scratch}.new()", *lines]
        spare, memory = self.scope.fresh("spare"), self.scope.fresh("memory")
        head = [
            f"{spare} = {scratch}.spare",
            f"{memories}= {memory} = {spare}.pop() if {spare} else {scratch}.new()",
        ]
        return [*head, *driver.lines, f"{spare}.append({memory})", f"return {result}"]

    def flat(
        self, inputs: Sequence[Variable], before: Sequence[str] = (), *further: str
    ) -> Callable[..., list[Any]]:
        """A function of these inputs, and of `further` ones that the lines `before` read, which
        returns the list of outputs."""
        results = ", ".join(self.driver.results())
        lines = [*before, *self.calling(f"[{results}]")]
        parameters = ", ".join([*[place.name for place in inputs], *further])
        head = f"def {self.scope.fresh('flat')}({parameters}):"
        return self.function([head, *[INDENT + line for line in lines]])

    def function(self, lines: Sequence[str]) -> Callable[..., Any]:
        """The function defined by these lines. Its file name marks it as tapegrad's code, so that
        it gets NumPy's original functions where their names are swapped."""
        name = lines[0].partition("(")[0].removeprefix("def ")
        exec(compile("\n".join(lines), f"{__file__}: {name}", "exec"), self.names)
        return self.names.pop(name)  # removed from its own globals, to avoid a cycle


def compiled_text(executable: Executable) -> Text:
    """The source around the driver of an executable."""
    return Text(executable.driver, driver_namespace(executable))


def driver_namespace(executable: Executable) -> dict[str, Any]:
    """The names in a driver's lines: kernels, functions that NumPy runs, dtypes."""
    if fault := HOST.fault():
        raise InternalError(f"machine code can't be run here: {fault}")
    driver = executable.driver
    names: dict[str, Any] = {"Stale": Miss, OUT_OF_RANGE: OutOfRange, **NUMBERS, **dtypes()}
    names |= {numpy_name(x.dtype): x.dtype.type for x in driver.outputs if is_half(x.dtype)}
    names |= {"own": own, **HOST.functions(executable)}
    for name, primitive in driver.calls:
        names[name] = partial(_run_by_numpy, primitive)
    return names


def _run_by_numpy(primitive: Any, *xs: Any) -> Any:
    """The result of a call that NumPy runs. Raises `Miss` if the call raises an error, or if a
    guard of a sub-tape fails: then a new trace shows the user where, or follows the user's
    `except`."""
    try:
        return primitive.evaluate(*xs)
    except Exception as error:
        let_through(error)
        if isinstance(error, TapegradError) and getattr(error, "guard", None) is None:
            raise
        raise Miss from None


class Entry:
    """A variant as a function.

    `call` takes the function and the user's arguments, and checks that the state which the function
    read is unchanged; `call_flat` takes leaves. `text` calls kernels or NumPy. If `watched`, calls
    are compared with the played tape when debugging; that makes no sense if the entry plays it.
    """

    fast: bool
    call: Callable[..., Any]

    def __init__(
        self,
        derivation: Derivation,
        state: State,
        text: Text,
        request: Request,
        watched: bool = True,
    ) -> None:
        self.derivation = derivation
        self.state = state
        self.driver = text.driver
        self.watched = watched
        self.taken = text.scope.fresh("taken")
        self._draws = derivation.traced.draws
        self._held: list[str] = []  # the names of captured arrays in the source
        self._scratch = text.named("scratch", text.scratch)
        self._prologue = self._captured(text)
        self._functions = [self._generate_flat(text)]
        self.fast = False
        self.names = text.names
        self.named, self.shapes = place_of(request.args, request.kwargs, request.chosen)
        self._generate_fast(text, request.args, request.kwargs)
        self._watch()

    def bound_to(self, derivation: Derivation) -> Entry:
        """The same entry and code with other captured arrays, or none."""
        entry = copy.copy(self)
        entry.derivation = derivation
        arrays = derivation.traced.captured or (None,) * len(self._held)
        entry.names = {**self.names, **dict(zip(self._held, arrays, strict=True))}
        entry.names[self._scratch] = Scratch(self.driver.scratch)
        entry._functions = [
            types.FunctionType(f.__code__, entry.names, f.__name__) for f in self._functions
        ]
        entry._watch()
        return entry

    def _watch(self) -> None:
        """Compare the generated functions with the played tape, when debugging."""
        self._flat, *fast = self._functions
        if fast:
            (self.call,) = fast
        if self._draws is not None or not self.watched:
            return
        tape = self.derivation.tape
        self._flat = debug.watched(self._flat, tape, self._inputs, by_number)
        if fast:
            self.call = debug.watched(
                self.call,
                tape,
                lambda _, *passed: self._inputs(*array_leaves(passed)),
                partial(debug.outputs_of, self.derivation.assemble, len(tape.outputs)),
            )

    def _captured(self, text: Text) -> list[str]:
        """Lines that convert captured arrays to what the kernels take; most are already. They check
        what no kernel checks, since an array's dtype and layout can be changed in place."""
        lines = []
        drawn = () if self._draws is None else self._draws.numbers
        count = len(self.derivation.traced.captured)
        places = self.driver.inputs[len(self.driver.inputs) - count :]
        keys = self.derivation.outside
        captured = self.derivation.traced.captured
        for k, (place, array, key) in enumerate(zip(places, captured, keys, strict=True)):
            if k in drawn:
                self._held.append("")
                value = f"{self.taken}.values[{k}]"
                lines.append(f"{place.name} = {value}{'' if place.shape else '.item()'}")
                continue
            is_same = place.checked or array.dtype.num == place.dtype.num
            if place.shape and is_plain(array) and is_same:
                text.names[place.name] = array
                self._held.append(place.name)
                if not place.checked:
                    lines += text.missed(text.unfit(place.name, place.shape, place.dtype))
                continue
            given = text.named(f"{place.name}_given", array)
            self._held.append(given)
            lines += text.of_layout(place.name, given, key, place.dtype)
            if not place.shape:
                lines.append(f"{place.name} = {place.name}.item()")
        return lines

    def _generate_flat(self, text: Text) -> Callable[..., Any]:
        places = self.driver.inputs
        count = len(places) - len(self.derivation.traced.captured)
        if self._draws is not None:
            return text.flat(places[:count], self._prologue, self.taken)
        return text.flat(places[:count], self._prologue)

    def _inputs(self, *leaves: Any) -> list[Any]:
        """The values of the tape's inputs."""
        return [*played(leaves, self.derivation.tape.inputs), *self.derivation.traced.captured]

    def call_flat(self, leaves: Sequence[Any], taken: DrawnValues) -> Any:
        """The result for traced leaves of this variant's kind, and random numbers. Raises `Miss` if
        a guard fails."""
        values = [
            prepared(leaf, var)
            for leaf, var in zip(leaves, self.derivation.tape.inputs, strict=False)
        ]
        try:
            further = () if self._draws is None else (taken,)
            found = self._flat(*values, *further)
            if self.derivation.left:
                taken.left = [found[k] for k in self.derivation.left]
            return self.derivation.assemble(found)
        except BufferError:  # a captured array has changed its shape
            raise Miss from None

    # ---- the fast entry

    def _state_guards(self, text: Text, root: str, given: str, by_name: str) -> list[str]:
        """Lines that raise `Miss` if the state that the function read has changed."""
        state = self.state
        if state.never:
            return text.missed("True")
        passed = {"f": root, "args": given, "kwargs": by_name, **self.generators}
        lines: list[str] = []
        for line, is_condition in state.lines(passed, text.named, text.scope.fresh):
            lines += text.missed(f"not ({line})") if is_condition else [line]
        if not lines:
            return []
        error = text.named("Exception", Exception)
        through, raised = text.named("let_through", let_through), text.scope.fresh("error")
        return [
            "try:",
            *[INDENT + line for line in lines],
            f"except {error} as {raised}:",  # an object is gone, or of another type
            f"{INDENT}{through}({raised})",
            f"{INDENT}raise {text.miss} from None",
        ]

    def _drawing(self, text: Text, lines: Sequence[str]) -> list[str]:
        """Lines that draw random numbers, followed by lines that return a result."""
        if self._draws is None:
            return [*lines]
        take = text.named("take", self._draws.take)
        results = [*self.driver.results()]
        left = ", ".join([results[k] for k in self.derivation.left])
        kept = [*lines[:-1], f"{self.taken}.keep({left})", lines[-1]]
        head = f"with {take}({', '.join(self.generators.values())}) as {self.taken}:"
        return [head, *[INDENT + line for line in kept]]

    def _apart(self, text: Text) -> list[str]:
        """A check that no result is written over a captured array."""
        into, held = self.derivation.tape.into, [name for name in self._held if name]
        if not (into and held):
            return []
        places = ", ".join([self.driver.inputs[at].name for _, at in into])
        check, label = text.named("check_places", check_places), self.derivation.traced.name
        return [f"{check}({label!r}, [{places}], [{', '.join(held)}])"]

    def _generate_fast(self, text: Text, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        root, given, by_name = [text.scope.fresh(x) for x in ("f", "args", "kwargs")]
        structures = [self.derivation.traced.structure, *self.derivation.selection.structures]
        transformation = self.derivation.transformation
        if (
            not transformation.mirrors
            or self.state.asks
            or self.derivation.tells
            or not all(map(can_be_written, structures))
        ):
            return
        self.generators = {name: text.scope.fresh(name) for name in self.state.followed}
        try:
            writer = Unpacker(text, transformation.alike)
            writer.unpack_arguments(given, args)
            if kwargs:
                writer.unpack(by_name, kwargs)
            made = self.derivation.assemble([Mark(x) for x in self.driver.results()])
            result = written_as(text, made)
        except NotSimple:
            return
        errors = [BufferError, KeyError, OverflowError, TypeChanged]
        caught = ", ".join(text.named(e.__name__, e) for e in errors)
        ready = [*self._prologue, *self._apart(text)]
        body = [*writer.lines, *self._drawing(text, [*ready, *text.calling(result)])]
        lines = [f"def {text.scope.fresh('call')}({root}, {given}, {by_name}):"]
        guards = self._state_guards(text, root, given, by_name)
        self.guards = len(guards)  # number of lines
        lines += [INDENT + line for line in guards]
        lines += [f"{INDENT}try:", *[INDENT * 2 + line for line in body]]
        lines += [f"{INDENT}except ({caught}):", f"{INDENT * 2}raise {text.miss} from None"]
        self.text = "\n".join(lines)
        self._functions.append(text.function(lines))
        self.fast = True


def flat_function(tape: Tape) -> Callable[..., list[Any]]:
    """An optimised tape compiled: a function of prepared inputs that returns the outputs."""
    from tapegrad.compiler.client import compiled

    text = compiled_text(compiled(replace(tape, ordered=True)))
    call = text.flat(text.driver.inputs)
    return debug.watched(call, tape, lambda *values: played(values, tape.inputs), by_number)


def compiled_tape(tape: Tape) -> Callable[..., Any]:
    """A compiled tape as a function with the arguments and results of `tape.play`."""
    from tapegrad.pipeline import optimized

    call = flat_function(optimized(tape))

    def checked(*args: Any, **kwargs: Any) -> Any:
        values = checked_inputs(tape, args, kwargs)
        given = [prepared(x, v) for x, v in zip(values, tape.inputs, strict=True)]
        try:
            found = call(*given)
        except Miss:
            _, broken = run(tape, values)
            raise stale(tape, broken) from None
        return found[0] if len(found) == 1 else tuple(found)

    return checked


def prepared(leaf: Any, var: Var) -> Any:
    """A leaf as kernels take it: a plain number, or a row-major array."""
    if var.shape == ():
        return leaf if type(leaf) is float or is_number(leaf) else np.asarray(leaf).item()
    if type(leaf) is np.ndarray and is_plain(leaf) and leaf.dtype.num == var.dtype.num:
        return leaf
    return np.require(np.asarray(leaf), var.dtype, ["C", "A"])


def by_number(values: Sequence[Any]) -> dict[int, Any]:
    return dict(enumerate(values))


def played(values: Sequence[Any], inputs: Sequence[Var]) -> list[Any]:
    """The inputs' values as NumPy takes them to play a tape: numbers are NumPy scalars."""
    return [x if v.shape else v.dtype.type(x) for x, v in zip(values, inputs, strict=False)]
