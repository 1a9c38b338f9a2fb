"""Checks that each stage preserves the meaning of its input: under TAPEGRAD_DEBUG, and in the
tests."""
