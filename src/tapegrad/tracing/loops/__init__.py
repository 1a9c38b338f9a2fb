"""Loops of which one round is traced for all: how a round is traced, what rounds give, stacked, and
how many there are. `tapegrad.scan` and `while_loop` are here; the statements of a program come here
by way of `statements`.
"""
