"""What is known of objects without running their code: which are harmless, what they consist of,
how they are compared and named, and what generators, loggers, bars and files are. The guards and
the notes of a run are made with it."""
