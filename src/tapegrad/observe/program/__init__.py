"""The user's program as CPython sees it: its lines and syntax, the control flow of its bytecode,
and the operands on a frame's stack. Nothing here knows of a trace; all observing code queries this
folder."""
