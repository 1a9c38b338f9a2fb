"""Calls of the functions of scipy.optimize; see tests/scipy/names_test.py."""

CALLS = ""
