"""Reports to the user about tapegrad's work: what served a call, and what became of its lines."""
