"""Calls of the functions of scipy.signal; see tests/scipy/names_test.py."""

CALLS = ""
