"""Whole runs of functions and their tapes. `run.py` is the entry point for all tracing; the others
compare two runs, watch for floating-point errors, and handle trees that are partly on a tape."""
