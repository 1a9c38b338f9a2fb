"""Tracers: the proxies of arrays and numbers, with their attributes, conversions, and errors for
unsupported uses. The front end and the run create them."""
