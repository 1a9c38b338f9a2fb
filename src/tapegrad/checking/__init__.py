"""What holds each stage to what it was given: under TAPEGRAD_DEBUG, and in the tests."""
