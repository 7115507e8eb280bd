"""Whether there is room: what nodes ask for, what hosts and quotas have left."""
