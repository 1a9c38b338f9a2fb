"""Watching the one run of a function that a trace makes: what it reads of the outside.

    program/      the user's program: lines, syntax, instructions, frames, where branches meet
    objects/      what is known of objects without running their code
    answers/      what is called in the place of functions that don't ask their arguments
    values/       what is known of traced values below the tracers
    guards/       what was read, as conditions that a later call checks
    activations/  frames that are followed, and what is noted of their run
    sides/        what rounds of loops and sides of branches change
    packages/     calls of packages and of C, which are one step
    operands/     what is put in the place of operands on a frame's stack
    waiting/      what waits until the run is over, or is done anew after each call
    observer.py   which frames are followed, and how long; beside it, what each instruction does

Each of these imports those before it alone, and none knows what traces: that is put in from above,
by `answers/dispatch.py`.

Every object that a program computes with comes to it by an instruction. So by following them it is
known exactly which places were read, and what was found there. What happens inside C code isn't
seen: of the functions that are known to depend on their arguments alone, all of the arguments count
as read, and a tape on which any other took part isn't used again.
"""
