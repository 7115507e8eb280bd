"""The instances of a cluster as AWS has them, and the way to each."""

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

# Those that cost nothing any more.
ENDED = ("shutting-down", "terminated")


@dataclass(frozen=True)
class Instance:
    """One instance. `group`: its worker group, or "head"; `status`: Ray's last word of its set-up."""

    id: str
    group: str
    is_head: bool
    state: str
    status: str
    type: str
    ami: str
    zone: str
    is_spot: bool
    launched: datetime | None
    private_ip: str | None
    public_ip: str | None
    reason: str
    tags: Mapping[str, str]

    @property
    def name(self) -> str:
        return naming.node(naming.HEAD if self.is_head else self.group, self.id)

    @property
    def runs(self) -> bool:
        """Say whether it is there, or on its way: a stopped one is not."""
        return self.state in ("pending", "running")

    @property
    def exists(self) -> bool:
        return self.state not in ENDED


def of_cluster(location: Location) -> list[Instance]:
    """Return the instances of Ray's cluster of that name, in every state, the head first.

    They may be another owner's, or plain `ray up`'s. Raises RequestError where there are none
    because these credentials are another account's.
    """
    found = instances(location.aws, {naming.RAY_CLUSTER: location.name})
    if not found:
        refuse_other_account(location)
    return found


def instances(aws: Aws, tags: Mapping[str, str], *, region: str | None = None) -> list[Instance]:
    """Return the instances with these tags, in every state, the head first."""

    def order(instance: Instance) -> tuple[bool, str, str]:
        return not instance.is_head, instance.group, str(instance.launched)

    found = [_instance(described) for described in aws.instances(tags, region=region)]
    return sorted(found, key=order)


def head(found: list[Instance]) -> Instance | None:
    for instance in found:
        if instance.is_head and instance.exists:
            return instance
    return None


def ip(section: Ec2Section, instance: Instance) -> str | None:
    """Return the address at which this machine reaches an instance."""
    if section.use_internal_ips:
        return instance.private_ip
    return instance.public_ip or instance.private_ip


def login(location: Location, instance: Instance) -> tuple[Address, Identity]:
    """Return an instance's address as this machine reaches it, and the key for it."""
    address = Address(str(ip(location.section, instance)), location.section.user)
    return address, Identity(location.key_file, location.known_hosts(instance.id))


def reach(location: Location, instance: Instance) -> Connection:
    address, identity = login(location, instance)
    return connect(str(address), location.environ, identity)


def inside(instance: Instance, words: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the words that run a command where Ray is: on the host, or in the container there."""
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
        launched=described.get("LaunchTime"),
        private_ip=described.get("PrivateIpAddress"),
        public_ip=described.get("PublicIpAddress"),
        reason=(described.get("StateReason") or {}).get("Message", ""),
        tags=tags,
    )
