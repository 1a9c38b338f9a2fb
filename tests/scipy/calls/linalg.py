"""Calls of the functions of scipy.linalg; see tests/scipy/names_test.py."""

CALLS = ""
