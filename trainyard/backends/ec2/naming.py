"""How everything of a cluster is called and tagged in AWS: that is how it is found again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CLUSTER = "trainyard-cluster"
# On disks that are to outlive the cluster of that name, in place of the first.
KEPT = "trainyard-kept"
# Where it was made: only that owner has its key and its token.
OWNER = "trainyard-owner"
# On the head, once Ray runs there: fingerprints of what it was made from, and of that part which
# needs a new head.
MADE_FROM = "trainyard-made-from"
HEAD_FROM = "trainyard-head-from"
# In place of a fingerprint, where plain `ray up` made the head.
RAY_UP = "ray up"
# On every instance: the fingerprint of what its group was then, and what runs on it, by digest.
NODE_FROM = "trainyard-node-from"
IMAGE = "trainyard-image"
# Answers that stay while the cluster runs: the AMI's name in the file, and the subnets that were
# found.
AMI = "trainyard-ami"
SUBNETS = "trainyard-subnets"

# Ray's own tags (ray/autoscaler/tags.py), and what it writes into them.
RAY_CLUSTER = "ray-cluster-name"
RAY_KIND = "ray-node-type"
RAY_GROUP = "ray-user-node-type"
RAY_STATUS = "ray-node-status"
UP_TO_DATE = "up-to-date"
UPDATE_FAILED = "update-failed"
HEAD = "head"


def resource(name: str) -> str:
    """Return what the cluster's key pair, security group and containers are called."""
    return f"trainyard-{name}"


def role(name: str, region: str) -> str:
    """Return the name of the cluster's role and instance profile.

    It has the region, which IAM does not know, and at most IAM's 64 characters.
    """
    return f"{resource(name)[: 63 - len(region)]}-{region}"


def node(group: str, instance: str) -> str:
    """Return an instance's name as a Ray node, the same as in ray_autoscaler/cluster.yaml.j2."""
    if group == HEAD:
        return HEAD
    return f"{group}-{instance[-8:]}"


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as AWS writes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def read(tags: Iterable[Mapping[str, Any]] | None) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags or ()}
