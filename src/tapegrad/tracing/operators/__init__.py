"""The operators and methods of numbers and arrays: Python's own numbers, which are weak, and
NumPy's. The classes of tracers are made with them."""
