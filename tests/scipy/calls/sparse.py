"""Calls of the functions of scipy.sparse; see tests/scipy/names_test.py."""

CALLS = ""
