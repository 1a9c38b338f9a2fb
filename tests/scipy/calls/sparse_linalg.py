"""Calls of the functions of scipy.sparse.linalg; see tests/scipy/names_test.py."""

CALLS = ""
