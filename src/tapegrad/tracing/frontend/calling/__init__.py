"""How calls of functions are followed in general: which ones the library itself accepts, of which
kind results are, NumPy's own Python code run on tracers, and functions of elements."""
