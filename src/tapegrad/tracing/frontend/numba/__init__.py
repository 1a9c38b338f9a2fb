"""Functions compiled by numba, traced as their Python source, changed where numba's types compute
other results than Python's."""
