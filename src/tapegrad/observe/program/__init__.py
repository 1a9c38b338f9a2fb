"""The user's program as Python has it: its lines and syntax, the instructions of its code and the
ways that these may go, the operands on a frame's stack. Nothing here knows of a trace; all that
observes asks here."""
