"""Loops of which one round is traced for all: the trace of a round, the stacked results of rounds,
and the number of rounds. `tapegrad.scan` and `while_loop` are here; the loops of plain statements
are in `statements`.
"""
