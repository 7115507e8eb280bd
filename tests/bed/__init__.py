"""Real parts for the tests: a Docker engine of our own, images on it, and a remote Docker host.

Everything that takes long is kept in $XDG_CACHE_HOME/trainyard-bed. By hand: `python -m tests.bed up`.
"""
