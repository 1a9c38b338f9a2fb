"""Control flow"""

from __future__ import annotations


def test_an_if_that_flips(derivative):
    """an `if` on a traced value takes the other branch -> traced anew"""
    df = derivative(lambda x: x**2 if x > 0 else -(x**3))
    df.at(3.0)
    df.at(-1.0)
    df.at(2.0)
