"""Parts of a run that are postponed to its end, or that each call repeats after its result:
changes, texts, files, records of loggers, threads."""
