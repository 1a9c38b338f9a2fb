"""Users' own rules: primitives, and derivatives of users' and libraries' functions. A call of such
a function is one call on the tape."""
