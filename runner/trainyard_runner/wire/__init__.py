"""What operator, head and node tell each other: names, plans, records, streams, archives; standard library only."""
