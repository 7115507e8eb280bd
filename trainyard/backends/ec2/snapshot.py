"""A cluster's instances as AWS lists them, and how to reach them by SSH."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.backends.ec2 import naming
from trainyard.backends.ec2.location import Location, refuse_other_account
from trainyard.seams.aws import Aws
from trainyard.seams.ssh.config import Address, Identity
from trainyard.seams.ssh.connection import Connection, connect
from trainyard.spec.ec2 import Ec2Section

# Instances in these states cost nothing.
ENDED = ("shutting-down", "terminated")


@dataclass(frozen=True)
class Instance:
    """An instance; `group` is a worker group or "head".

    `status` is the tag in which Ray notes how far it has set up the instance.
    `reason` is AWS's reason for the instance's end; "" while it runs.
    """

    id: str
    group: str
    is_head: bool
    state: str
    status: str
    type: str
    ami: str
    zone: str
    is_spot: bool
    launched: datetime
    private_ip: str | None
    public_ip: str | None
    reason: str
    tags: Mapping[str, str]

    @property
    def name(self) -> str:
        return naming.node(naming.HEAD if self.is_head else self.group, self.id)

    @property
    def runs(self) -> bool:
        return self.state in ("pending", "running")

    @property
    def exists(self) -> bool:
        return self.state not in ENDED


def of_cluster(location: Location) -> list[Instance]:
    """Ask AWS for instances with Ray's cluster tag, in any state, head first.

    They may belong to another owner, or come from plain `ray up`. Raises
    RequestError if there are none, and the credentials belong to another
    account than the recorded one.
    """
    found = instances(location.aws, {naming.RAY_CLUSTER: location.name})
    if not found:
        refuse_other_account(location)
    return found


def instances(aws: Aws, tags: Mapping[str, str], *, region: str | None = None) -> list[Instance]:
    """Ask AWS for the instances with these tags, in any state, head first."""

    def order(instance: Instance) -> tuple[bool, str, datetime]:
        return not instance.is_head, instance.group, instance.launched

    found = [_instance(described) for described in aws.instances(tags, region=region)]
    return sorted(found, key=order)


def head(found: list[Instance]) -> Instance | None:
    for instance in found:
        if instance.is_head and instance.exists:
            return instance
    return None


def ip(section: Ec2Section, instance: Instance) -> str | None:
    """Return the address for this machine's connections to an instance."""
    if section.use_internal_ips:
        return instance.private_ip
    return instance.public_ip or instance.private_ip


def login(location: Location, instance: Instance) -> tuple[Address, Identity]:
    address = Address(str(ip(location.section, instance)), location.section.user)
    return address, Identity(location.key_file, location.known_hosts(instance.id))


def reach(location: Location, instance: Instance) -> Connection:
    address, identity = login(location, instance)
    return connect(str(address), location.environ, identity)


def inside(instance: Instance, words: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command that runs `words` in Ray's container, if any."""
    if naming.IMAGE not in instance.tags:
        return list(words)
    container = naming.resource(instance.tags[naming.CLUSTER])
    return ["docker", "exec", "-it" if terminal else "-i", container, *words]


def _instance(described: Mapping[str, Any]) -> Instance:
    tags = naming.read(described.get("Tags"))
    return Instance(
        id=described["InstanceId"],
        group=tags.get(naming.RAY_GROUP, ""),
        is_head=tags.get(naming.RAY_KIND) == naming.HEAD,
        state=described["State"]["Name"],
        status=tags.get(naming.RAY_STATUS, ""),
        ami=described.get("ImageId", ""),
        type=described.get("InstanceType", ""),
        zone=described.get("Placement", {}).get("AvailabilityZone", ""),
        is_spot=described.get("InstanceLifecycle") == "spot",
        launched=described["LaunchTime"],
        private_ip=described.get("PrivateIpAddress"),
        public_ip=described.get("PublicIpAddress"),
        reason=(described.get("StateReason") or {}).get("Message", ""),
        tags=tags,
    )
