"""New arrays and shapes: reshaping, joining, making, windows."""
