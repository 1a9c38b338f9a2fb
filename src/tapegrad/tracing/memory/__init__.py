"""Arrays whose memory counts: those that a function makes and may fill, views of one memory,
arguments that share it, and arrays that are made when they are first used."""
