"""The ways by which a program comes to NumPy: ufuncs, methods, functions of plain arrays and lists,
names that are answered. `frontend` puts them into what tracers hand calls on to."""
