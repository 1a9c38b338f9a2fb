"""Users' own rules: primitives, derivatives of functions of theirs and of libraries. A call of such
a function is one call on the tape."""
