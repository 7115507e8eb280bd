"""Cluster, job and image files as frozen models that show all problems."""
