"""Calls of the functions of scipy.optimize.elementwise; see tests/scipy/names_test.py."""

CALLS = """
find_root: elementwise.find_root(lambda y, c: y**3 + s * y - c, (0.0, 5.0), args=(x,)).x
find_minimum!: elementwise.find_minimum(lambda y: np.cosh(y - s), (-9.0, 1.0, 9.0)).x
bracket_root: elementwise.bracket_root(lambda y, c: y**3 + s * y - c, 0.0, args=(x,)).f_bracket[1]
bracket_minimum: elementwise.bracket_minimum(lambda y: (y - s) ** 2, 0.0).f_bracket[1]
"""
