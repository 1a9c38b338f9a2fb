"""Programs as Python text, for all targets."""
