"""The operators and methods of tracers of numbers and arrays: of Python's own numbers, which are
weak, and of NumPy's. The classes of tracers are made with them."""
