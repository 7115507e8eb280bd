"""A registry in a container: run it, list its images, make Docker trust it, remove it."""
