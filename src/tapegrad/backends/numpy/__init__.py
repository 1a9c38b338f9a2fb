"""NumPy, call by call."""
