"""Disks that outlive their cluster, where that is asked for: they carry another tag, which `down`
leaves alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.backends.ec2 import naming
from trainyard.backends.ec2.location import Location
from trainyard.seams import aws_prices
from trainyard.seams.aws import Aws
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted


def steps(location: Location) -> tuple[Step, Step]:
    """Return the step after which the cluster's disks do not end with their instances, and the one
    after the instances.

    In between the disks carry both tags: a `down` that is not to keep them still finds and removes
    them.
    """
    aws = location.aws

    def of_cluster() -> list[dict[str, Any]]:
        return tagged(aws, naming.CLUSTER, location.name, region=aws.region)

    def are_kept() -> Answer:
        left = [each for each in of_cluster() if naming.KEPT not in naming.read(each["Tags"])]
        if left:
            return no(f"they go with the cluster: {ids(left)}")
        return YES

    def keep() -> None:
        volumes = of_cluster()
        for attached in (attached for each in volumes for attached in each["Attachments"]):
            device = {"DeviceName": attached["Device"], "Ebs": {"DeleteOnTermination": False}}
            instance = {"InstanceId": attached["InstanceId"], "BlockDeviceMappings": [device]}
            aws.call("ec2", "modify_instance_attribute", **instance)
        names = [each["VolumeId"] for each in volumes]
        aws.call(
            "ec2", "create_tags", Resources=names, Tags=naming.pairs({naming.KEPT: location.name})
        )

    def are_released() -> Answer:
        left = of_cluster()
        if left:
            return no(f"still the cluster's: {ids(left)}")
        return YES

    def release() -> None:
        names = [each["VolumeId"] for each in of_cluster()]
        # Also of an instance that was launched meanwhile.
        aws.call(
            "ec2", "create_tags", Resources=names, Tags=naming.pairs({naming.KEPT: location.name})
        )
        aws.call("ec2", "delete_tags", Resources=names, Tags=[{"Key": naming.CLUSTER}])

    every = [*of_cluster(), *kept(location)]
    # Disruptive, although it ends no node: where runs go on, nothing at all is changed.
    keeping = Step(
        "keep-disks", f"Keep {describe(aws, every, aws.region)}", are_kept, keep, disruptive=True
    )

    return keeping, Step(
        "release-disks", "Take the disks out of the cluster", are_released, release
    )


def kept(location: Location) -> list[dict[str, Any]]:
    """Return the disks that an earlier `down` has kept."""
    found = tagged(location.aws, naming.KEPT, location.name, region=location.aws.region)
    return [each for each in found if naming.CLUSTER not in naming.read(each["Tags"])]


def remark(aws: Aws, volumes: Sequence[dict[str, Any]], region: str) -> str:
    """Return what is said of disks that were kept."""
    remove = f"aws ec2 delete-volume --region {region} --volume-id ID"
    return f"kept {describe(aws, volumes, region)}; to remove one: {remove}"


def tagged(aws: Aws, key: str, value: str, *, region: str) -> list[dict[str, Any]]:
    """Return the volumes with a tag; the value "*" stands for any."""
    return aws.described("volumes", {f"tag:{key}": [value]}, region=region)


def describe(aws: Aws, volumes: Sequence[dict[str, Any]], region: str) -> str:
    """Return what disks there are, and what they cost if that is known: `1 disk (20 GiB, 1.60 USD a
    month): vol-1`.
    """
    kinds = {volume["VolumeType"] for volume in volumes}
    sizes = {
        kind: sum(each["Size"] for each in volumes if each["VolumeType"] == kind) for kind in kinds
    }
    prices = [aws_prices.monthly(aws, region, size, kind) for kind, size in sizes.items()]
    if None in prices or not prices:
        cost = ""
    else:
        cost = f", {sum(filter(None, prices)):.2f} USD a month"
    return f"{counted(len(volumes), 'disk')} ({sum(sizes.values())} GiB{cost}): {ids(volumes)}"


def ids(volumes: Sequence[dict[str, Any]]) -> str:
    return ", ".join(volume["VolumeId"] for volume in volumes)
