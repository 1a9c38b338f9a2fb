"""What the methods of tapes and plans do: what they call is built on the representations, so it is
put in from here. It is imported when it is called; few programs print a plan or draw a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapegrad.ir.tape import METHODS, Tape


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    METHODS[function.__name__] = function
    return function


@_method
def show(tape: Tape) -> str:
    from tapegrad.ir.text import show

    return show(tape)


@_method
def show_plan(plan: Any) -> str:
    from tapegrad.ir.plan_text import show_plan

    return show_plan(plan)


@_method
def html(shown: Any, kind: str) -> str:
    from tapegrad.core.pages import code, page

    head, _, lines = str(shown).partition("\n")
    return page(head, code(lines, f"print({kind})"))


@_method
def run(tape: Tape, values: Sequence[Any], own: Sequence[int] = ()) -> list[Any]:
    from tapegrad.backends.numpy.play import run_whole

    return run_whole(tape, values, own)


@_method
def pulled(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape of the cotangents of these inputs, for those of the outputs, its last inputs."""
    from tapegrad.pipeline import derive

    return derive(tape, wrt, seed=True, keep=())


@_method
def pushed(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape of the tangents of the outputs, for those of these inputs, its last inputs."""
    from tapegrad.pipeline import derive_forward

    return derive_forward(tape, wrt)


@_method
def repeat(loop: Any, xs: Sequence[Any]) -> Any:
    from tapegrad.backends.numpy.play import repeat_whole

    return repeat_whole(loop, xs)


@_method
def play(tape: Tape, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    from tapegrad.backends.numpy.play import checked_inputs, play

    if kwargs.get("debug") is True and not _takes_debug(tape):
        from tapegrad.insight.watching import print_calls

        given = {name: x for name, x in kwargs.items() if name != "debug"}
        return print_calls(tape, checked_inputs(tape, args, given))
    return play(tape, args, kwargs)


def _takes_debug(tape: Tape) -> bool:
    """Whether that is an argument of the function itself."""
    named = () if tape.form is None else tape.form.structure.child(1).entries()
    return "debug" in (named if tape.form is not None else tape.names)


@_method
def compile(tape: Tape) -> Callable[..., Any]:
    from tapegrad.runtime.entry import compiled_tape

    return compiled_tape(tape)


@_method
def source(tape: Tape) -> str:
    from tapegrad.pipeline import source_of

    return source_of(tape)


@_method
def numpy_source(tape: Tape) -> str:
    from tapegrad.pipeline import numpy_source_of

    return numpy_source_of(tape)


@_method
def to_networkx(tape: Tape) -> Any:
    from tapegrad.ir.graph import to_networkx

    return to_networkx(tape)


@_method
def to_json(tape: Tape) -> str:
    from tapegrad.ir.graph import to_json

    return to_json(tape)


@_method
def from_json(text: str) -> Tape:
    from tapegrad.checking.tape_verify import checked
    from tapegrad.ir.graph import from_json

    return checked(from_json(text), "a tape of JSON")


@_method
def to_dot(tape: Tape) -> str:
    from tapegrad.ir.graph import to_dot

    return to_dot(tape)


@_method
def memory_report(tape: Tape) -> Any:
    from tapegrad.ir.memory import memory_report
    from tapegrad.pipeline import scratch_bytes_of

    return memory_report(tape, scratch_bytes_of(tape))


@_method
def replace(tape: Tape, at: Any, f: Callable[..., Any]) -> Tape:
    from tapegrad.runtime.edits import replaced

    return replaced(tape, at, f)


@_method
def insert(tape: Tape, at: Any, f: Callable[..., Any], others: Sequence[Any]) -> Tape:
    from tapegrad.runtime.edits import inserted

    return inserted(tape, at, f, others)


@_method
def delete(tape: Tape, at: Any, instead: Any) -> Tape:
    from tapegrad.runtime.edits import deleted

    return deleted(tape, at, instead)


@_method
def gradients(tape: Tape, wrt: Sequence[Any] | None) -> Tape:
    from tapegrad.runtime.edits import gradients

    return gradients(tape, wrt)
