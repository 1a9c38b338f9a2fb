"""The record of a run: the trace with its tape, the values that may decide, the memory layout of
arrays, and chains of views. It uses tracers only by the interface below them."""
