"""The stand-ins for arrays and numbers, with their attributes and conversions, and what they say
where they can't be followed. The front end gives them to programs, and so does a run."""
