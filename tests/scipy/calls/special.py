"""Calls of the functions of scipy.special; see tests/scipy/names_test.py."""

CALLS = """
softmax: special.softmax(x, axis=0)
logsumexp: special.logsumexp(x, axis=1, b=w)
"""
