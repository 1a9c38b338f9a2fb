"""What a run records: the trace with its tape, which values may decide, how arrays lie in memory,
and the chains of views. It knows tracers by what is known of them below these."""
