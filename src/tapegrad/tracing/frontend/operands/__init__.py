"""Arguments and results of NumPy's functions: operands, which go on the tape, and parameters, which
don't; the memory that results share; functions of complex numbers by their parts."""
