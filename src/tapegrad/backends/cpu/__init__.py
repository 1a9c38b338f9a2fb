"""The processor that runs Python, through numba's code generator."""
