"""What the arguments of NumPy's functions are: operands on a tape, parameters that aren't, memory
that results share, and functions that are followed on complex numbers."""
