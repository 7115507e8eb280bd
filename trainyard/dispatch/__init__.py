"""Send a job to a cluster, follow its run, and fetch results; backends are unknown here."""
