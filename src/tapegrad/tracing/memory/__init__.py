"""Arrays whose memory matters: those that a function creates and may fill, views of one memory,
arguments that share it, and arrays that are created on first use."""
