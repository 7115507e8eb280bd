"""Disks that `cluster.down --keep-disks` keeps, under a tag of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from trainyard.backends.ec2 import naming
from trainyard.backends.ec2.location import Location
from trainyard.seams import aws_prices
from trainyard.seams.aws import Aws
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted


def steps(location: Location) -> tuple[Step, Step]:
    """Return two steps of --keep-disks: before and after the instances' end.

    The first step makes the disks outlive their instances, and tags them as
    kept. The second step removes the cluster's tag. In between, a `down`
    without --keep-disks still removes the disks.
    """
    aws = location.aws

    def of_cluster() -> list[dict[str, Any]]:
        return tagged(aws, naming.CLUSTER, location.name, region=aws.region)

    def are_kept() -> Answer:
        left = [disk for disk in of_cluster() if naming.KEPT not in naming.read(disk["Tags"])]
        if left:
            return no(f"they would be removed with the cluster: {ids(left)}")
        return YES

    def keep() -> None:
        volumes = of_cluster()
        _outlive_instances(aws, volumes)
        _tag_kept(location, volumes)

    def are_released() -> Answer:
        left = of_cluster()
        if left:
            return no(f"still the cluster's: {ids(left)}")
        return YES

    def release() -> None:
        volumes = of_cluster()
        # Instances launched after the first step have disks without the tag.
        _tag_kept(location, volumes)
        names = [volume["VolumeId"] for volume in volumes]
        aws.call("ec2", "delete_tags", Resources=names, Tags=[{"Key": naming.CLUSTER}])

    title = f"Keep {describe(aws, of_cluster() + kept(location), aws.region)}"
    # The step ends no node. It is disruptive so that nothing changes while runs are in flight.
    keeping = Step("keep-disks", title, are_kept, keep, disruptive=True)
    title = "Take the disks out of the cluster"
    return keeping, Step("release-disks", title, are_released, release)


def _outlive_instances(aws: Aws, volumes: Sequence[dict[str, Any]]) -> None:
    for volume in volumes:
        for attachment in volume["Attachments"]:
            device = {"DeviceName": attachment["Device"], "Ebs": {"DeleteOnTermination": False}}
            instance = {"InstanceId": attachment["InstanceId"], "BlockDeviceMappings": [device]}
            aws.call("ec2", "modify_instance_attribute", **instance)


def _tag_kept(location: Location, volumes: Sequence[dict[str, Any]]) -> None:
    names = [volume["VolumeId"] for volume in volumes]
    tags = naming.pairs({naming.KEPT: location.name})
    location.aws.call("ec2", "create_tags", Resources=names, Tags=tags)


def kept(location: Location) -> list[dict[str, Any]]:
    """Ask AWS for the disks that an earlier `down` of this cluster kept."""
    volumes = tagged(location.aws, naming.KEPT, location.name, region=location.aws.region)
    return [volume for volume in volumes if naming.CLUSTER not in naming.read(volume["Tags"])]


def remark(aws: Aws, volumes: Sequence[dict[str, Any]], region: str) -> str:
    remove = f"aws ec2 delete-volume --region {region} --volume-id ID"
    return f"kept {describe(aws, volumes, region)}; to remove one: {remove}"


def tagged(aws: Aws, key: str, value: str, *, region: str) -> list[dict[str, Any]]:
    """Ask AWS for the volumes with a tag; "*" matches any value."""
    return aws.described("volumes", {f"tag:{key}": [value]}, region=region)


def describe(aws: Aws, volumes: Sequence[dict[str, Any]], region: str) -> str:
    """Describe disks: `1 disk (20 GiB, 1.60 USD a month): vol-1`."""
    gib_by_type: Counter[str] = Counter()
    for volume in volumes:
        gib_by_type[volume["VolumeType"]] += volume["Size"]

    prices = [aws_prices.monthly(aws, region, gib, kind) for kind, gib in gib_by_type.items()]
    cost = ""
    if prices and None not in prices:
        cost = f", {sum(filter(None, prices)):.2f} USD a month"

    size = sum(gib_by_type.values())
    return f"{counted(len(volumes), 'disk')} ({size} GiB{cost}): {ids(volumes)}"


def ids(volumes: Sequence[dict[str, Any]]) -> str:
    return ", ".join(volume["VolumeId"] for volume in volumes)
