"""A Docker engine and the `docker` command: what Trainyard asks of them, and their errors."""
