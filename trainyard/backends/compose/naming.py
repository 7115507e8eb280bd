"""How everything of a cluster is called and labelled on its Docker host: that is how it is found again."""

from __future__ import annotations

from collections.abc import Mapping

CLUSTER = "io.trainyard.cluster"
OWNER = "io.trainyard.owner"
NODE = "io.trainyard.node"
GROUP = "io.trainyard.group"
CPUS = "io.trainyard.cpus"
GPUS = "io.trainyard.gpus"
SIMULATED = "io.trainyard.simulated-gpus"
IMAGE = "io.trainyard.runs"
TOKEN = "io.trainyard.token"  # noqa: S105 (a label's name; its value is a fingerprint)
PLAN = "io.trainyard.plan"


def of_cluster(name: str) -> str:
    return f"{CLUSTER}={name}"


def common(name: str, owner: str) -> dict[str, str]:
    return {CLUSTER: name, OWNER: owner}


def owner_of(labels: Mapping[str, str]) -> str:
    return labels.get(OWNER, "somebody unknown")


def project(name: str) -> str:
    """Return the name of the cluster's Compose project, and of its network."""
    return f"trainyard-{name}"


def container(name: str, node: str) -> str:
    return f"{project(name)}-{node}"


def outputs(name: str) -> str:
    return f"{project(name)}-outputs"
