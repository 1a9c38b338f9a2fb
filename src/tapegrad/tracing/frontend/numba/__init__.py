"""Functions that numba has compiled, as the Python that they were made of, changed to where numba's
types have it compute otherwise."""
