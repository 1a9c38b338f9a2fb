"""Elements and parts of arrays, read and written: by integers, slices, masks and arrays of indices.
Tracers call these functions for indices that their own shortcuts don't handle."""
