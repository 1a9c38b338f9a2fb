"""Loops of the program's own frames: `for` and `while` statements of which one round is traced for
all. The observer detects them, and `loops` traces their rounds."""
