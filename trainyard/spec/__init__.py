"""Cluster, job and image files as frozen models, validated with all problems at once."""
