"""A registry in a container: run, list, trust and remove it."""
