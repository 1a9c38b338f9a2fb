"""The reads of a run, as conditions that later calls check: places, values, attributes, and
functions that each call queries again. The notes of a run collect them, and `runtime` checks
them."""
