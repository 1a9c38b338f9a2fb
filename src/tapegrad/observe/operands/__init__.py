"""Replacement of operands on a frame's stack before an instruction runs: answers replace functions,
plain integers replace traced ones, and plain arrays and tables become traced ones wherever they are
held."""
