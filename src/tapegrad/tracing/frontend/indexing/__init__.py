"""Elements and parts of arrays, read and written: by integers, slices, masks and arrays of indices."""
