"""Replacements for Python's own functions on traced values: builtins, `math`, `statistics`,
functions that iterate over all entries, and the methods of random number generators."""
