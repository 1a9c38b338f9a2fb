"""Python -> Tape: what a run of a function comes to, instruction by instruction.

    recording/   what a run records: the trace, its tape, how arrays lie in memory
    operators/   the operators of Python's and NumPy's numbers
    tracers/     the stand-ins for arrays and numbers, made of those
    memory/      arrays that the function makes, views of one memory
    draws/       random numbers, and other values that each call makes anew
    outside/     what the function reaches by itself, and leaves there
    runs/        one run of a function: the way in is `runs/run.py`
    loops/       loops of which one round is traced for all, as they are written by name
    statements/  and as a program's frame makes them
    frontend/    what answers NumPy's, pandas', numba's and Python's functions on tracers
    branches/    branches that go both ways, and other control flow on the tape
    rules/       users' own derivative rules

Each of these imports those before it alone. They all stand on `tapegrad.observe`, which watches the
run.
"""
