"""Plan -> source -> machine code, for each target."""
