"""The language C."""
