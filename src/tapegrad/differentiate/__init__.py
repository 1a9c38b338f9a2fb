"""Tape -> Tape: derivatives, batching and checkpoints."""
