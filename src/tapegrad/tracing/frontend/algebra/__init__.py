"""Matrix products and factorisations, least squares, Fourier transforms."""
