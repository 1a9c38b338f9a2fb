"""Products and factors of matrices, least squares, Fourier transforms."""
