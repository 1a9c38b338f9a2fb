"""Calls of the functions of scipy.fft; see tests/scipy/names_test.py."""

CALLS = ""
