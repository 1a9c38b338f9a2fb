"""Properties of objects, found without running their code: which are harmless, their parts, their
comparison and names, and facts about generators, loggers, progress bars and files. Guards and the
notes of a run are built on these."""
