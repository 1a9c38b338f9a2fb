"""What answers Python's own functions on traced values: builtins, `math`, `statistics`, what goes
through all entries of something, and the methods of generators of random numbers."""
