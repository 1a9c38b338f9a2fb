"""The representations: tapes and plans."""
