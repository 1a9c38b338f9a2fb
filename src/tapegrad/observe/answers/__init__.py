"""Replacements for functions that would not dispatch on a tracer, and the hooks of tracers into the
front end. Rows are declared here. The observer puts the replacement on a frame's stack; in a run
that isn't observed, names are swapped."""
