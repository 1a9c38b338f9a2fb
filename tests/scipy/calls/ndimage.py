"""Calls of the functions of scipy.ndimage; see tests/scipy/names_test.py."""

CALLS = ""
