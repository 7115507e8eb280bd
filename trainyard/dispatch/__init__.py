"""Send a job to any backend's cluster, follow its run, and fetch results."""
