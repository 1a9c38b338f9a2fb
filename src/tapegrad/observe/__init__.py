"""Observing the traced run of a function: the state that it reads beyond its arguments.

    program/      the user's program: lines, syntax, instructions, frames, where branches merge
    objects/      facts about objects, found without running their code
    answers/      replacements for functions that would not dispatch on a tracer
    values/       properties of traced values that don't need the tracers
    guards/       reads, as conditions that a later call checks
    activations/  frames that are followed, and notes about their run
    sides/        changes made by rounds of loops and by sides of branches
    packages/     calls of installed packages and of C code, each one step
    operands/     replacement of operands on a frame's stack
    waiting/      work postponed to the end of the run, or repeated after each call
    observer.py   which frames are followed, and how long; beside it, the instructions' handlers

Each folder imports only those above it. None knows the tracers: `tracing/` registers itself in
`answers/dispatch.py`.

Every object that a program computes with comes to it by an instruction. So observing the
instructions tells exactly which places were read, and what was found there. The inside of C code
isn't seen. A C function that is known to depend on its arguments alone counts as reading all of
them. If any other C function took part, the tape isn't used again.
"""
