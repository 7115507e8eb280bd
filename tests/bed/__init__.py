"""Real parts for the tests: a Docker engine, its images, and containers that play hosts.

The bed's hosts play remote Docker hosts, Kubernetes nodes, MicroK8s machines and EC2 instances. Its
slow builds are cached in $XDG_CACHE_HOME/trainyard-bed. By hand: `make bed`, or `python -m
tests.bed up`.
"""
