"""Tape -> Tape, one file a pass."""
