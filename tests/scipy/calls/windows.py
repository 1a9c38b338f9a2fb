"""Calls of the functions of scipy.signal.windows; see tests/scipy/names_test.py."""

CALLS = ""
