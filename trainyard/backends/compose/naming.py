"""Names and labels by which commands find a cluster's Docker objects."""

from __future__ import annotations

CLUSTER = "io.trainyard.cluster"
OWNER = "io.trainyard.owner"
NODE = "io.trainyard.node"
# A node's plan as JSON.
PLAN = "io.trainyard.made-from"
# The leash's settings (shared/leash.py) as JSON, on the leash's container.
LEASH = "io.trainyard.leash"


def of_cluster(name: str) -> str:
    return f"{CLUSTER}={name}"


def common(name: str, owner: str) -> dict[str, str]:
    return {CLUSTER: name, OWNER: owner}


def project(name: str) -> str:
    """Return the name of the cluster's Compose project, and of its network."""
    return f"trainyard-{name}"


def container(name: str, node: str) -> str:
    return f"{project(name)}-{node}"


def outputs(name: str) -> str:
    return f"{project(name)}-outputs"
