"""Calls of the functions of scipy.spatial.distance; see tests/scipy/names_test.py."""

CALLS = ""
