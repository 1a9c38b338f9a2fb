"""What a run has read, as conditions that later calls check: places, values, attributes, what is
asked again at each call. The notes of a run collect it, and `runtime` checks it."""
