"""What users are shown of tapegrad's work: what answered a call, what became of their lines."""
