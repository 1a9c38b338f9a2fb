"""Calls of the functions of scipy.interpolate; see tests/scipy/names_test.py."""

CALLS = ""
