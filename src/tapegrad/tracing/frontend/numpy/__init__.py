"""Entry points to NumPy: ufuncs, methods, functions of plain arrays and lists, and replaced names.
The `frontend` package registers them in `dispatch`."""
