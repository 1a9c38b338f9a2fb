"""Loops that a program's own frame makes: `for` and `while` statements of which one round is traced
for all. The observer enters them, and `loops` traces their rounds."""
