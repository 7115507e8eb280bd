"""Send a job to a cluster, follow its run, and fetch results; nothing here knows backends."""
