"""Calls of the functions of scipy.integrate; see tests/scipy/names_test.py."""

CALLS = ""
