"""Names and tags by which later commands find a cluster's AWS resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CLUSTER = "trainyard-cluster"
# The tag that replaces the cluster's tag on kept disks. Its value is the former cluster's name.
KEPT = "trainyard-kept"
# The owner: the user and machine that made the cluster, and that have its key and token.
OWNER = "trainyard-owner"
# Tags of a head on which Ray runs: the fingerprints of the document that the head was made from,
# and of the document's part whose change needs a new head.
MADE_FROM = "trainyard-made-from"
HEAD_FROM = "trainyard-head-from"
# The value of HEAD_FROM on a head that plain `ray up` made.
RAY_UP = "ray up"
# Tags of every instance: its group's fingerprint at the launch, and its image by digest.
NODE_FROM = "trainyard-node-from"
IMAGE = "trainyard-image"
# Tags of every instance: the AMI's name in the file, and the subnets that were usable at the
# launch. A running cluster keeps both.
AMI = "trainyard-ami"
SUBNETS = "trainyard-subnets"

# Ray's own tags (ray/autoscaler/tags.py), and values of RAY_STATUS and RAY_KIND.
RAY_CLUSTER = "ray-cluster-name"
RAY_KIND = "ray-node-type"
RAY_GROUP = "ray-user-node-type"
RAY_STATUS = "ray-node-status"
UP_TO_DATE = "up-to-date"
UPDATE_FAILED = "update-failed"
HEAD = "head"


def resource(name: str) -> str:
    """Return the name of the key pair, security group and containers."""
    return f"trainyard-{name}"


def role(name: str, region: str) -> str:
    """Return the name of the role and instance profile, at most 64 characters.

    The limit is IAM's. IAM is not regional, so the name contains the region.
    """
    return f"{resource(name)[: 63 - len(region)]}-{region}"


def node(group: str, instance: str) -> str:
    """Return a Ray node's name, as ray_autoscaler/cluster.yaml.j2 makes it."""
    if group == HEAD:
        return HEAD
    return f"{group}-{instance[-8:]}"


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def read(tags: Iterable[Mapping[str, Any]] | None) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags or ()}
