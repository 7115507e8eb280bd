"""Moto's state of the bed's region, with the inventions of moto replaced by the bed's facts."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

REGION = "us-west-2"
ACCOUNT = "123456789012"


class Backends:
    """Moto's state of the region whose instances the bed runs as containers."""

    def __init__(self) -> None:
        from moto.backends import get_backend

        self.ec2: Any = get_backend("ec2")[ACCOUNT][REGION]

    def instance(self, address: str) -> Any:
        """Return the running instance with that private or public address."""
        running = self.ec2.all_running_instances()
        return next(
            (found for found in running if address in (found.private_ip, found.public_ip)), None
        )

    def role(self, instance: Any) -> str | None:
        """Return the name of the role that an instance has through its profile."""
        held = self.ec2.iam_instance_profile_associations.get(instance.id)
        return (
            held.iam_instance_profile.roles[0].name
            if held and held.iam_instance_profile.roles
            else None
        )


def metadata(backends: Backends, instance: Any) -> dict[str, str]:
    """Return the values that the instance metadata service serves, by path.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html
    """
    role = backends.role(instance)
    document = {
        "instanceId": instance.id,
        "region": REGION,
        "accountId": ACCOUNT,
        "privateIp": instance.private_ip,
    }

    known = {
        "ami-id": instance.image_id,
        "hostname": instance.private_dns_name,
        "instance-id": instance.id,
        "instance-life-cycle": instance.lifecycle or "on-demand",
        "instance-type": instance.instance_type,
        "local-hostname": instance.private_dns_name,
        "local-ipv4": instance.private_ip,
        "placement/availability-zone": instance.placement.zone,
        "placement/region": REGION,
        "dynamic/instance-identity/document": json.dumps(document),
    }

    if instance.public_ip:
        known["public-ipv4"] = instance.public_ip

    if role:
        keys = {
            "AccessKeyId": f"ASIA{instance.id[2:].upper()}",
            "SecretAccessKey": "bed",
            "Token": "bed",
        }

        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 6 * 3600))
        known["iam/security-credentials"] = role
        known[f"iam/security-credentials/{role}"] = json.dumps(
            {"Code": "Success", **keys, "Expiration": until}
        )

    return known


def stay_inside(network: str, public: str) -> None:
    """Make moto assign the bed's addresses: in the region's default VPC, and as public addresses.

    An instance without a subnet is placed in the default VPC, as in AWS; moto would give it an
    address that is in no network.
    """
    from moto.ec2.models import elastic_ip_addresses, elastic_network_interfaces
    from moto.ec2.models.instances import InstanceBackend
    from moto.ec2.models.vpcs import VPCBackend

    numbers = itertools.cycle(range(10, 250))
    create_vpc, run_instances = VPCBackend.create_vpc, InstanceBackend.run_instances

    def create(self: Any, cidr_block: str, *rest: Any, **named: Any) -> Any:
        ours = named.get("is_default") and self.region_name == REGION
        return create_vpc(self, network if ours else cidr_block, *rest, **named)

    def launch(self: Any, *given: Any, **named: Any) -> Any:
        if not named.get("subnet_id") and not named.get("nics"):
            subnets = self.get_default_subnets()
            named["subnet_id"] = subnets[named.get("placement") or min(subnets)].id
        return run_instances(self, *given, **named)

    def public_ip() -> str:
        return f"{public}.{next(numbers)}"

    VPCBackend.create_vpc = create  # type: ignore[method-assign]
    InstanceBackend.run_instances = launch  # type: ignore[method-assign]

    for module, name in (
        (elastic_network_interfaces, "random_public_ip"),
        (elastic_ip_addresses, "random_ip"),
    ):
        setattr(module, name, public_ip)


def register(backends: Backends, amis: list[dict[str, Any]]) -> None:
    """Add the region's AMIs to moto; an AMI of another region does not exist."""
    from moto.ec2.models.amis import Ami

    for ami in amis:
        backends.ec2.amis[ami["ami_id"]] = Ami(backends.ec2, region_name=f"{REGION}a", **ami)
