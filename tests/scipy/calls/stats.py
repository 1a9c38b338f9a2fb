"""Calls of the functions of scipy.stats; see tests/scipy/names_test.py."""

CALLS = ""
