"""The entry of a compiled variant: from the user's arguments to the kernels and back.

For arguments made of tuples, lists, dicts, arrays and numbers a function is generated that takes
them apart by name, checks what the kernels' own argument check doesn't see, and puts the results
together: no tree is walked at a call. Everything else goes through `call_flat`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.emit.driver import INDENT, dtypes
from tapegrad.emit.names import Names
from tapegrad.ir.tape import Tape, Var
from tapegrad.runtime.compile import Executable, compiled
from tapegrad.runtime.play import checked_inputs, run, stale
from tapegrad.trees import is_number, is_traced

if TYPE_CHECKING:
    from tapegrad.runtime.derived import Variant


class Miss(Exception):
    """This entry doesn't answer for these arguments; another may, or a new trace."""


class Scratch(threading.local):
    """Scratch memory of one program, kept between calls, one piece a thread."""

    def __init__(self, sizes: Sequence[tuple[int, np.dtype]]) -> None:
        self.buffers = tuple(np.empty(size, dtype) for size, dtype in sizes)


def driver_namespace(executable: Executable, tape: Tape) -> dict[str, Any]:
    """What a generated driver sees: kernels, scratch memory, dtypes."""
    from tapegrad.emit.linking import linked  # loads LLVM, which playing doesn't need

    driver = executable.driver
    names: dict[str, Any] = {"empty": np.empty, "Stale": Miss, "Miss": Miss}
    names["nan"], names["inf"] = np.nan, np.inf
    if any("spread(" in line for line in driver.lines):
        from tapegrad.emit.threads import spread  # loads a pool of threads, which few need

        names["spread"] = spread
    names.update(dtypes())
    functions: dict[bytes, Any] = {}  # kernels that are alike are linked once
    for name, code in executable.kernels.items():
        if code not in functions:
            functions[code] = linked(name, code)
        names[name] = functions[code]
    sizes = driver.scratch
    if driver.calls:  # a user's function may call back into this one, so nothing is shared
        names["scratch"] = lambda: tuple(np.empty(n, t) for n, t in sizes)
    elif sizes:
        holder = Scratch(sizes)
        names["scratch"] = lambda: holder.buffers
        names["scratch_of"] = holder
    for name, number in driver.calls:
        names[name] = tape.calls[number].primitive.evaluate
    return names


class Entry:
    """A compiled variant: `call` for the user's arguments, `call_flat` for leaves."""

    fast: bool
    call: Callable[..., Any]

    def __init__(self, variant: Variant, executable: Executable, args: Any, kwargs: Any) -> None:
        self.variant = variant
        self.state = variant.state
        self.driver = executable.driver
        self.names = driver_namespace(executable, variant.tape)
        # The driver's names are the user's, whatever they are, and the entry takes others.
        said = re.findall(r"\w+", " ".join(self.driver.lines))
        self.unused = Names(frozenset([*said, *(place.name for place in self.driver.inputs)]))
        self._flat = self._generate_flat()
        self.fast = False
        if not kwargs:
            self._generate_fast(args)

    def constant(self, wanted: str, value: Any) -> str:
        """A name under which the entry sees this value."""
        name = self.unused.fresh(wanted)
        self.names[name] = value
        return name

    def _body(self) -> list[str]:
        lines = list(self.driver.lines)
        if "scratch_of" in self.names:
            lines = [line.replace("scratch()", "scratch_of.buffers") for line in lines]
        return lines

    def _hidden(self) -> list[str]:
        """Lines that make captured arrays what the kernels take; most are so already."""
        lines = []
        count = len(self.variant.traced.hidden)
        places = self.driver.inputs[len(self.driver.inputs) - count :]
        for place, array in zip(places, self.variant.traced.hidden, strict=True):
            name = place.name
            if not place.shape or not _is_plain(array):
                given = self.constant(f"{name}_given", array)
                dtype = self.constant(f"{name}_dtype", place.dtype)
                require = self.constant("require", np.require)
                value = f"{require}({given}, {dtype}, ['C', 'A', 'E'])"
                lines.append(f"{name} = {value}{'' if place.shape else '.item()'}")
            else:
                self.names[name] = array
        return lines

    def _generate_flat(self) -> Callable[..., Any]:
        places = self.driver.inputs
        count = len(places) - len(self.variant.traced.hidden)
        parameters = ", ".join(place.name for place in places[:count])
        lines = [f"def flat({parameters}):"]
        lines += [INDENT + line for line in (*self._hidden(), *self._body())]
        lines.append(f"{INDENT}return [{', '.join(self.driver.results())}]")
        exec("\n".join(lines), self.names)
        return self.names["flat"]

    def call_flat(self, leaves: Sequence[Any]) -> Any:
        """The result for traced leaves of any layout; `Miss` if a guard doesn't hold."""
        values = [
            _prepared(leaf, var)
            for leaf, var in zip(leaves, self.variant.tape.inputs, strict=False)
        ]
        try:
            return self.variant.assemble(self._flat(*values))
        except BufferError:  # an array from outside has got another shape
            raise Miss from None

    # ---- the fast entry

    def _generate_fast(self, args: Sequence[Any]) -> None:
        try:
            writer = _Unpacker(self)
            writer.unpack_arguments(args)
            result = _Packer(self).expression()
        except _NotSimple:
            return
        body = [*writer.lines, *self._hidden(), *self._body()]
        lines = ["def call(*args):", f"{INDENT}try:"]
        lines += [INDENT * 2 + line for line in body]
        lines.append(f"{INDENT * 2}return {result}")
        lines += [
            f"{INDENT}except (BufferError, KeyError, OverflowError):",
            f"{INDENT * 2}raise Miss from None",
        ]
        self.text = "\n".join(lines)
        exec(self.text, self.names)
        self.call = self.names["call"]
        self.fast = True


def flat_function(tape: Tape) -> Callable[..., list[Any]]:
    """An optimised tape compiled: a function of prepared inputs that returns the outputs."""
    executable = compiled(tape)
    driver, names = executable.driver, driver_namespace(executable, tape)
    inputs = ", ".join(place.name for place in driver.inputs)
    lines = [f"def run({inputs}):", *[INDENT + line for line in driver.lines]]
    lines.append(f"{INDENT}return [{', '.join(driver.results())}]")
    exec("\n".join(lines), names)
    return names["run"]


def compiled_tape(tape: Tape) -> Callable[..., Any]:
    """A tape compiled by itself: takes what `tape.play` takes, and returns what it returns."""
    from tapegrad.pipeline import optimized

    call = flat_function(optimized(tape))

    def checked(*args: Any) -> Any:
        values = checked_inputs(tape, args)
        prepared = [_prepared(x, v) for x, v in zip(values, tape.inputs, strict=True)]
        try:
            found = call(*prepared)
        except Miss:
            _, broken = run(tape, values)
            raise stale(tape, broken) from None
        return found[0] if len(found) == 1 else tuple(found)

    return checked


def _is_plain(x: np.ndarray) -> bool:
    return x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative and type(x) is np.ndarray


def _prepared(leaf: Any, var: Var) -> Any:
    """A leaf as the kernels take it: a plain number, or a row-major array."""
    if var.shape == ():
        return leaf if is_number(leaf) else np.asarray(leaf).item()
    if type(leaf) is np.ndarray and _is_plain(leaf) and leaf.dtype.num == var.dtype.num:
        return leaf
    return np.require(np.asarray(leaf), var.dtype, ["C", "A"])


class _NotSimple(Exception):
    """The arguments or results have a structure that no entry is generated for."""


class _Unpacker:
    """Writes the lines that take arguments apart and check their structure."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.lines: list[str] = []
        self.inputs = iter(entry.driver.inputs)

    def _check(self, condition: str) -> None:
        self.lines += [f"if {condition}:", f"{INDENT}raise Miss"]

    def _constant(self, value: Any) -> str:
        if type(value) in (str, int, bool, type(None)):
            return repr(value)
        return self.entry.constant("constant", value)

    def unpack_arguments(self, args: Sequence[Any]) -> None:
        self._check(f"len(args) != {len(args)}")
        for position, arg in enumerate(args):
            self.unpack(f"args[{position}]", arg)

    def unpack(self, place: str, x: Any) -> None:
        if is_traced(x):
            self._leaf(place, x)
        elif type(x) in (dict, list, tuple):
            name = self.entry.unused.fresh("a")
            self.lines.append(f"{name} = {place}")
            kind = type(x).__name__
            if isinstance(x, dict):
                if {type(k) for k in x} not in (set(), {str}, {int}):
                    raise _NotSimple
                self._check(f"type({name}) is not dict or [*{name}] != {list(x)!r}")
                for key in sorted(x):
                    self.unpack(f"{name}[{key!r}]", x[key])
            else:
                self._check(f"type({name}) is not {kind} or len({name}) != {len(x)}")
                for position, element in enumerate(x):
                    self.unpack(f"{name}[{position}]", element)
        elif x is None:
            self._check(f"{place} is not None")
        elif type(x) in (bool, str, bytes):
            kind = type(x).__name__
            self._check(f"type({place}) is not {kind} or {place} != {x!r}")
        else:
            raise _NotSimple

    def _leaf(self, place: str, x: Any) -> None:
        if isinstance(x, np.ndarray) and not _is_plain(x):
            raise _NotSimple  # a plain array would be answered too, but has its own variant
        given = next(self.inputs)
        name = given.name
        self.lines.append(f"{name} = {place}")
        if given.shape:
            return  # the kernel checks type, shape, dtype and layout
        kind = type(x)
        self.entry.names["ndarray"] = np.ndarray
        if kind is np.ndarray:
            dtype = self._constant(x.dtype)
            self._check(f"type({name}) is not ndarray or {name}.shape or {name}.dtype != {dtype}")
            self.lines.append(f"{name} = {name}.item()")
        elif kind in (float, int):
            self._check(f"type({name}) is not {kind.__name__}")
        else:
            self._check(f"type({name}) is not {self._constant(kind)}")


class _Packer:
    """Writes the expression that puts the results together."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    def expression(self) -> str:
        names = iter(self.entry.driver.results())
        variant = self.entry.variant
        marks = [_Mark(name) for name in names]
        assembled = variant.assemble(marks)
        return self._show(assembled)

    def _show(self, x: Any) -> str:
        if isinstance(x, _Mark):
            return x.text
        if type(x) is tuple:
            return f"({', '.join(map(self._show, x))}{',' if len(x) == 1 else ''})"
        if type(x) is list:
            return f"[{', '.join(map(self._show, x))}]"
        if type(x) is dict and all(type(k) in (str, int) for k in x):
            return "{" + ", ".join(f"{k!r}: {self._show(v)}" for k, v in x.items()) + "}"
        if x is None or type(x) in (bool, str, int, float):
            return repr(x)
        raise _NotSimple


class _Mark:
    """Stands for an output while the structure of the result is read off."""

    def __init__(self, text: str) -> None:
        self.text = text
