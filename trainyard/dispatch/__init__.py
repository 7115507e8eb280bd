"""Send a job to a cluster, follow it, bring its results home; knows an address, never a backend."""
