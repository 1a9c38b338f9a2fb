"""Elements and parts of arrays, read and written: by integers, slices, masks and arrays of
indices. Tracers come here where their own way to an element isn't enough."""
