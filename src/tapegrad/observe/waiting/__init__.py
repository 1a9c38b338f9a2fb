"""What a run does that waits until it is over, or that each call does anew after its result:
changes, texts, files, records of loggers, threads."""
