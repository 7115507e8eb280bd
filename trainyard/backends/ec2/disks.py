"""Disks that outlive their cluster, where that is asked for: they carry another tag, which `down` leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.backends.ec2 import naming
from trainyard.backends.ec2.location import Location
from trainyard.seams import aws_prices
from trainyard.seams.aws import Aws
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted


def step(location: Location) -> Step:
    """Return the step after which the cluster's disks are none of it any more, and do not end with their instances."""
    aws = location.aws

    def done() -> Answer:
        left = tagged(aws, naming.CLUSTER, location.name, region=aws.region)
        return no(f"they go with the cluster: {ids(left)}") if left else YES

    def do() -> None:
        volumes = tagged(aws, naming.CLUSTER, location.name, region=aws.region)
        for attached in (attached for each in volumes for attached in each["Attachments"]):
            device = {"DeviceName": attached["Device"], "Ebs": {"DeleteOnTermination": False}}
            instance = {"InstanceId": attached["InstanceId"], "BlockDeviceMappings": [device]}
            aws.call("ec2", "modify_instance_attribute", **instance)
        names = [each["VolumeId"] for each in volumes]
        aws.call("ec2", "create_tags", Resources=names, Tags=naming.pairs({naming.KEPT: location.name}))
        aws.call("ec2", "delete_tags", Resources=names, Tags=[{"Key": naming.CLUSTER}])

    kept = [tagged(aws, key, location.name, region=aws.region) for key in (naming.CLUSTER, naming.KEPT)]
    return Step(f"Keep {describe(aws, [*kept[0], *kept[1]], aws.region)}", done, do)


def tagged(aws: Aws, key: str, value: str, *, region: str) -> list[dict[str, Any]]:
    """Return the volumes with a tag; the value "*" stands for any."""
    return aws.described("volumes", {f"tag:{key}": [value]}, region=region)


def describe(aws: Aws, volumes: Sequence[dict[str, Any]], region: str) -> str:
    """Return what disks there are, and what they cost if that is known: `1 disk (20 GiB, 1.60 USD a month): vol-1`."""
    kinds = {volume["VolumeType"] for volume in volumes}
    sizes = {kind: sum(each["Size"] for each in volumes if each["VolumeType"] == kind) for kind in kinds}
    prices = [aws_prices.monthly(aws, region, size, kind) for kind, size in sizes.items()]
    cost = "" if None in prices or not prices else f", {sum(filter(None, prices)):.2f} USD a month"
    return f"{counted(len(volumes), 'disk')} ({sum(sizes.values())} GiB{cost}): {ids(volumes)}"


def ids(volumes: Sequence[dict[str, Any]]) -> str:
    return ", ".join(volume["VolumeId"] for volume in volumes)
