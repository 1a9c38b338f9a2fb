"""What every other folder may import: trees, values, locks, logs. Nothing here knows of tapes."""
