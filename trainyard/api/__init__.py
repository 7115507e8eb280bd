"""Clusters, jobs and runs for Python programs and notebooks: what the commands do, as objects."""
