"""Functions along axes: sums and other reductions, sorting, quantiles, differences, padding."""
