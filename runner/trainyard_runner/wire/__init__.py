"""What operator, head and node tell each other, as records: standard library only."""
