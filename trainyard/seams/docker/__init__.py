"""A Docker engine, the `docker` command, and their errors."""
