"""The section `ec2`: instances, and additions to Ray's cluster file."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from trainyard.spec.fields import Complaint, Filled, Listed, Section, Size, matching, rule, setting
from trainyard.spec.units import GIB
from trainyard.spec.yaml_source import KeyPath
from trainyard.wording import did_you_mean

# The parameter of Systems Manager for the newest AMI with NVIDIA's driver, Docker and the AWS
# command line, also for instances without GPUs (AWS Deep Learning AMIs, "Find the ID with a
# parameter").
DEFAULT_AMI = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
)


def _id(kind: str) -> AfterValidator:
    return matching(rf"{kind}-[0-9a-f]{{8,17}}", f"must be an id such as {kind}-0123456789abcdef0")


# Docker does not know an option that is one word with its value: "-v /data:/data".
_DockerOption = Annotated[
    Filled,
    matching(
        r"(?!-[^\s=]*\s)[\s\S]+",
        "must be one word: write --ulimit=nofile=65536:65536, or two entries",
    ),
]
Region = Annotated[
    Filled, matching(r"[a-z]{2}(?:-[a-z]+)+-\d", "must be a region such as us-west-2")
]
Zone = Annotated[
    Filled, matching(r"[a-z]{2}(?:-[a-z0-9]+)+-\d[a-z]", "must be a zone such as us-west-2a")
]
InstanceType = Annotated[
    Filled, matching(r"[a-z0-9-]+\.[a-z0-9-]+", "must be an instance type such as g5.xlarge")
]
Ami = Annotated[
    Filled,
    matching(
        r"ami-[0-9a-f]{8,17}|/[A-Za-z0-9_./-]+",
        "must be an id such as ami-0123456789abcdef0, or a parameter of Systems Manager such as "
        "/aws/service/...",
    ),
]


def _network(text: str) -> str:
    """Return a network in AWS's form: 203.0.113.5/24 becomes 203.0.113.0/24."""
    try:
        return str(ipaddress.IPv4Network(text, strict=False))
    except ValueError:
        raise ValueError("must be addresses such as 203.0.113.0/24") from None


Cidr = Annotated[Filled, AfterValidator(_network)]

# Keys of Ray's own cluster file (KEY or KEY.KEY) that Trainyard sets, and what determines each.
MADE_FROM: Mapping[str, str] = {
    "cluster_name": "name",
    "max_workers": "count and max of the groups",
    "idle_timeout_minutes": "idle_timeout of the groups",
    "head_node_type": "head",
    "head_start_ray_commands": "ray_start of the head; setup_commands run before it",
    "worker_start_ray_commands": "ray_start of the groups; setup_commands run before it",
    "auth": "ec2.user and ec2.key_name",
    "no_restart": "--recreate",
    "provider.type": "backend",
    "provider.region": "ec2.region",
    "provider.availability_zone": "ec2.zones",
    "provider.cache_stopped_nodes": (
        "Trainyard, which always sets false: stopped instances continue to cost"
    ),
    "provider.use_internal_ips": "ec2.use_internal_ips",
    "provider.security_group": "ec2.security_group",
    "provider.key_pair": "ec2.key_name",
    "provider.aws_credentials": "ec2.profile",
    "docker.image": "image",
    "docker.head_image": "image of the head",
    "docker.worker_image": "image of the groups",
    "docker.container_name": "name",
    "docker.run_options": "ec2.docker_options",
}
# The same for a node type's keys. Plan, price and checks read only the user's file, so they would
# be wrong if Ray's file had another value.
MADE_FROM_GROUPS = {
    "min_workers": "count and min of the group",
    "max_workers": "count and max of the group",
    "idle_timeout_s": "idle_timeout of the group",
    "resources": "cpus, gpus, memory and resources of the group",
    "labels": "labels of the group",
    "node_config.InstanceType": "ec2.instance_type",
    "node_config.ImageId": "ec2.ami",
    "node_config.InstanceMarketOptions": "ec2.spot",
    "node_config.SubnetId": "ec2.subnet",
    "node_config.SubnetIds": "ec2.subnet",
    "node_config.SecurityGroupIds": "ec2.security_group",
    "node_config.KeyName": "ec2.key_name",
    "node_config.IamInstanceProfile": "ec2.instance_profile",
    "node_config.BlockDeviceMappings": "ec2.disk",
    "node_config.NetworkInterfaces": "ec2.subnet and ec2.security_group",
    "node_config.Placement.AvailabilityZone": "ec2.zones",
    "node_config.TagSpecifications": "ec2.tags",
    "docker.worker_image": "image of the group",
    "node_config.MinCount": "count and min of the group",
    "node_config.MaxCount": "count and max of the group",
}
# Keys that `ec2.ray` may add, by section (ray/autoscaler/ray-schema.json; RunInstances of EC2).
# Plan, price and checks do not depend on them. `cluster.up` checks their content with Ray's own
# schema.
OPEN = (
    "available_node_types",
    "cluster_synced_files",
    "docker",
    "file_mounts",
    "file_mounts_sync_continuously",
    "head_setup_commands",
    "initialization_commands",
    "provider",
    "rsync_exclude",
    "rsync_filter",
    "setup_commands",
    "upscaling_speed",
    "worker_setup_commands",
)
OPEN_BELOW: Mapping[str, Sequence[str]] = {
    "docker": (
        "pull_before_run",
        "head_run_options",
        "worker_run_options",
        "disable_automatic_runtime_detection",
        "disable_shm_size_detection",
        "use_podman",
    ),
    "provider": ("cloudwatch",),
}
OPEN_IN_GROUPS: Mapping[str, Sequence[str]] = {
    "": ("docker", "initialization_commands", "node_config", "priority", "worker_setup_commands"),
    "docker": ("pull_before_run", "worker_run_options"),
    "node_config": (
        "CapacityReservationSpecification",
        "CreditSpecification",
        "EbsOptimized",
        "EnclaveOptions",
        "HibernationOptions",
        "LicenseSpecifications",
        "MaintenanceOptions",
        "MetadataOptions",
        "Monitoring",
        "NetworkPerformanceOptions",
        "Placement",
        "PrivateDnsNameOptions",
        "UserData",
    ),
    "node_config.Placement": ("GroupId", "GroupName", "PartitionNumber"),
}


def _of_ray(added: Mapping[str, Any]) -> Iterator[Complaint]:
    """Check the keys of `ec2.ray`, also those of each group."""
    yield from _closed(added, {"": OPEN, **OPEN_BELOW}, MADE_FROM)

    for group, node_type in _below(added, ["available_node_types"]).items():
        at = ("available_node_types", group)
        yield from _closed(node_type, OPEN_IN_GROUPS, MADE_FROM_GROUPS, at=at)


def _closed(
    added: object,
    open_in: Mapping[str, Sequence[str]],
    made_from: Mapping[str, str],
    at: KeyPath = (),
) -> Iterator[Complaint]:
    """Reject keys that are in `made_from`, or are not in `open_in`."""
    for dotted, source in made_from.items():
        *above, key = dotted.split(".")
        if key in _below(added, above):
            yield Complaint((*at, *above, key), f"cannot be added: it follows from {source}")
    for dotted, names in open_in.items():
        above = dotted.split(".") if dotted else []
        for key in _below(added, above):
            if key not in names and ".".join([*above, str(key)]) not in made_from:
                meant = did_you_mean(str(key), names)
                yield Complaint(
                    (*at, *above, key), f"is not a key of Ray's file that can be added{meant}"
                )


def _below(document: object, keys: Sequence[str]) -> Mapping[Any, Any]:
    """Return a nested section; {} if there is none."""
    for key in keys:
        if not isinstance(document, dict):
            return {}
        document = document.get(key)
    if isinstance(document, dict):
        return document
    return {}


RayAdditions = Annotated[dict[str, Any], rule(_of_ray), WithJsonSchema({"type": "object"})]


class Instances(Section):
    """The settings of a group's instances."""

    instance_type: InstanceType | None = setting(None, "The instance type, such as m5.large.")
    ami: Ami | None = setting(None, "The AMI, or the parameter of Systems Manager that names it.")
    disk: Size | None = setting(None, "The size of the root volume.")
    spot: bool | None = setting(
        None, "true: spot instances, which are cheaper and may be taken away at any time."
    )


class Ec2Section(Instances):
    """EC2 instances, made by `ray up` and by Ray's autoscaler on the head."""

    region: Region | None = setting(
        None, "The region; left out: $AWS_REGION, else that of the profile."
    )
    zones: Listed[Zone] = setting(
        (), "Availability zones, in the order in which they are tried; left out: any."
    )
    profile: Filled | None = setting(
        None, "The profile of the AWS configuration; left out: $AWS_PROFILE."
    )
    groups: dict[Filled, Instances] = setting(
        {}, "Settings of one group, or of `head`, which replace those for all groups."
    )
    subnet: Annotated[Filled, _id("subnet")] | None = setting(
        None, "The subnet; left out: those of the default VPC."
    )
    security_group: Annotated[Filled, _id("sg")] | None = setting(
        None,
        "A security group; left out: one is made that lets SSH in from this machine's address "
        "alone.",
    )
    ssh_from: Listed[Cidr] = setting(
        (),
        "Networks that a security group made by Trainyard lets in by SSH, instead of this machine "
        "alone: 203.0.113.0/24.",
    )
    key_name: Filled | None = setting(None, "A key pair of the region; left out: one is made.")
    key_file: Filled | None = setting(
        None, "The private key of `key_name` on this machine; left out: ~/.ssh/KEY_NAME.pem."
    )
    instance_profile: Filled | None = setting(
        None,
        "The instance profile of all nodes; left out: one is made that may do what Ray's "
        "autoscaler needs.",
    )
    use_internal_ips: bool = setting(
        False,
        "true: this machine reaches nodes by their private addresses; with `subnet`, nodes then "
        "have no public ones.",
    )
    user: Filled = setting("ubuntu", "The user of the AMI who logs in by SSH, and may use sudo.")
    shm_size: Size | None = setting(
        None,
        "The shared memory of each container, which holds Ray's object store; left out: Ray "
        "works it out.",
    )
    docker_options: Listed[_DockerOption] = setting(
        (), "More options of `docker run`, one word each, such as --ulimit=nofile=65536:65536."
    )
    tags: dict[Filled, str] = setting({}, "Tags of everything made on AWS, such as a cost centre.")
    ray: RayAdditions = setting(
        {}, "Additions to Ray's own cluster file: keys are merged, entries of lists appended."
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.subnet and self.zones:
            yield Complaint(("zones",), "has no effect with subnet, which is in one zone")
        if self.key_file and not self.key_name:
            yield Complaint(("key_file",), "has an effect only with key_name", self.key_file)

    def added_to(self, group: str) -> Mapping[str, Any]:
        """Return the additions of `ec2.ray` to a group's node type."""
        return _below(self.ray, ["available_node_types", group])

    def instances(self, group: str) -> Instances:
        """Return a group's own settings, else those for all, else defaults."""
        own = self.groups.get(group, Instances())
        spot = own.spot
        if spot is None:
            spot = bool(self.spot)
        return Instances(
            instance_type=own.instance_type or self.instance_type or "m5.large",
            ami=own.ami or self.ami or DEFAULT_AMI,
            disk=own.disk or self.disk or 150 * GIB,
            spot=spot,
        )
