"""Cluster, job and image files as frozen, validated models, or all problems with them at once."""
