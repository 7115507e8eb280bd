"""Real parts for the tests: a Docker engine of our own, images on it, a remote Docker host, hosts
with Kubernetes.

Everything that takes long is kept in $XDG_CACHE_HOME/trainyard-bed. By hand: `make bed`, `python -m
tests.bed up`.
"""
