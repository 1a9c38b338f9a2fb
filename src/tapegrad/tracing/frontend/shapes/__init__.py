"""Functions that make arrays or change shapes: reshaping, joining, making, windows."""
