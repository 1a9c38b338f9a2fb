"""A frame that is followed, and what is noted of a run while its frames are: what it has made and
drawn, what has to be undone, and what earlier traces have learned. Every instruction that is
observed notes here what it does."""
