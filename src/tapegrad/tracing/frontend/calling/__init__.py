"""General treatment of calls: the library's verdict on arguments, the kinds of results, NumPy's own
Python code run on tracers, functions of elements."""
