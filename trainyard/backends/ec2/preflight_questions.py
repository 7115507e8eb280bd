"""Facts for the preflight: from this machine, then in parallel from AWS."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from trainyard.backends.contract import Site
from trainyard.backends.ec2 import naming, objects, snapshot
from trainyard.backends.ec2.desired import Group, groups
from trainyard.backends.ec2.location import Location
from trainyard.errors import TrainyardError
from trainyard.images import resolve
from trainyard.seams import ecr, iam
from trainyard.seams.aws import Aws
from trainyard.seams.ssh.many import gather
from trainyard.spec.cluster import ClusterSpec

# An item of an answer of AWS's `describe` calls.
Object = Mapping[str, Any]
# The answers by question (`_questions`); a question without an answer has no entry.
Facts = Mapping[str, Any]
# Programs that `ray up` runs here, and their packages in Debian.
PROGRAMS = {"rsync": "rsync", "ssh": "openssh-client"}
# The region to ask for the enabled regions: a region that is not enabled rejects the credentials.
HOME = "us-east-1"
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
# Optional questions: a user without the rights to ask them can still make a cluster.
OPTIONAL = {
    "regions": "whether the region is enabled, and whether another has a cluster of that name",
    "quotas": "whether the vCPU quotas suffice",
    "profile": "whether the instance profile exists",
    "may_pass_role": "whether this user may give instances a role",
    "has_spot_role": "whether the account has the role for spot instances",
}
STANDARD = ("L-1216C47A", "L-34B43A08")
GRAPHICS = ("L-DB2E81BA", "L-3819A6DF")
# For each instance family, the codes of its two vCPU quotas: on demand, and spot (EC2 user guide,
# "EC2 instance type quotas").
QUOTAS = {
    **dict.fromkeys((*"acdhimrtz", "im", "is"), STANDARD),
    **dict.fromkeys(("g", "gr", "vt"), GRAPHICS),
    "dl": ("L-6E869C2A", "L-85EED4F7"),
    "f": ("L-74FC7D96", "L-88CF9481"),
    "inf": ("L-1945791B", "L-B5D1601B"),
    "p": ("L-417A185B", "L-7212CCBC"),
    "trn": ("L-2C3B7624", "L-6B0D517C"),
    "x": ("L-7295265B", "L-E3A00192"),
}


def quota(group: Group) -> str | None:
    """Return the code of a group's vCPU quota; None for an unknown family."""
    family = re.match("[a-z]+", group.instance_type)
    codes = QUOTAS.get(family[0]) if family else None
    return codes[group.spot] if codes else None


def ask(
    spec: ClusterSpec, site: Site, location: Location
) -> tuple[Facts, dict[str, TrainyardError]]:
    """Ask the preflight's questions; return answers and errors by question.

    Most questions are left out if the region is not enabled, or the cluster has
    instances. Raises PrerequisiteError without credentials, RequestError if
    their account is not the recorded one, and AWS's error if AWS does not list
    the instances.
    """
    aws = location.aws
    facts: dict[str, Any] = {
        "region": aws.region,
        "programs": [name for name in PROGRAMS if shutil.which(name)],
        "image": 0,
    }

    found, errors = gather(["regions"], lambda _: aws.described("regions", region=HOME))
    regions = [region["RegionName"] for region in found.get("regions", ())]
    if regions:
        facts["regions"] = regions
        if aws.region not in regions:
            return facts, errors

    if any(instance.exists for instance in snapshot.of_cluster(location)):
        return facts, errors

    questions = _questions(spec, site, location, regions)
    answers, more_errors = gather(questions, lambda name: questions[name]())
    return facts | answers, errors | more_errors


def amis(spec: ClusterSpec, aws: Aws, running: Mapping[str, str]) -> dict[str, Object]:
    """Ask AWS for the file's AMIs; return existing ones by name in the file.

    A name is an id, or an SSM parameter that holds an id. `running` maps names
    to the ids of running instances, which are kept even if the parameter has
    changed.
    """
    names = {group.ami for group in groups(spec).values()}
    ids = {}
    for name in names:
        if name in running or not name.startswith("/"):
            ids[name] = running.get(name, name)

    parameters = sorted(names - ids.keys())
    if parameters:
        answer = aws.call("ssm", "get_parameters", Names=parameters)
        for parameter in answer["Parameters"]:
            ids[parameter["Name"]] = parameter["Value"]
    if not ids:
        return {}

    images = aws.described("images", {"image-id": ids.values()}, IncludeDeprecated=True)
    by_id = {image["ImageId"]: image for image in images}
    return {name: by_id[id] for name, id in ids.items() if id in by_id}


def _questions(
    spec: ClusterSpec, site: Site, location: Location, regions: Iterable[str]
) -> dict[str, Callable[[], Any]]:
    aws = location.aws
    section = spec.ec2
    environ = location.environ
    types = {"instance-type": {group.instance_type for group in groups(spec).values()}}
    offers = partial(aws.described, "instance_type_offerings", LocationType="availability-zone")
    questions: dict[str, Callable[[], Any]] = {
        "has_key": location.key_file.exists,
        "zones": lambda: [zone["ZoneName"] for zone in aws.described("availability_zones")],
        "types": lambda: _by_name(aws.described("instance_types", types)),
        "offers": lambda: offers(types),
        "quotas": lambda: _quotas(spec, aws),
        "amis": lambda: amis(spec, aws, {}),
        "subnets": lambda: subnets(spec, aws),
        "routes": lambda: aws.described("route_tables"),
    }

    if section.security_group:
        questions["security_groups"] = lambda: aws.described("security_groups")
    if section.key_name:
        questions["key_pairs"] = lambda: [each["KeyName"] for each in aws.described("key_pairs")]
    if section.instance_profile:
        questions["profile"] = partial(objects.profile, aws, section.instance_profile)
    questions["may_pass_role"] = lambda: _may_pass_role(spec, aws)
    if any(group.spot for group in groups(spec).values()):
        questions["has_spot_role"] = lambda: bool(objects.role(aws, SPOT_ROLE))

    if spec.image_of("head"):
        directory = site.directory
        questions["image"] = partial(resolve.pulled_bytes, spec, environ, directory=directory)
        if spec.registry and spec.registry.login == "ecr" and spec.registry.address:
            questions["login"] = partial(ecr.login, spec.registry.address, environ)
    questions["elsewhere"] = lambda: _elsewhere(spec, aws, regions)
    return questions


def _quotas(spec: ClusterSpec, aws: Aws) -> list[Object]:
    ask_quota = partial(aws.call, "service-quotas", "get_service_quota", ServiceCode="ec2")
    codes = {quota(group) for group in groups(spec).values()}
    return [ask_quota(QuotaCode=code)["Quota"] for code in codes if code]


def subnets(spec: ClusterSpec, aws: Aws) -> list[Object]:
    """Ask AWS for the file's subnet, else for its zones' default subnets."""
    if spec.ec2.subnet:
        return [*aws.described("subnets", {"subnet-id": [spec.ec2.subnet]})]

    described = aws.described("subnets", {"default-for-az": ["true"]})
    zones = spec.ec2.zones
    return [subnet for subnet in described if not zones or subnet["AvailabilityZone"] in zones]


def usable(spec: ClusterSpec, found: Iterable[Object]) -> list[Object]:
    """Return the subnets whose nodes this machine can reach."""
    if spec.ec2.use_internal_ips:
        return [*found]
    return [subnet for subnet in found if subnet["MapPublicIpOnLaunch"]]


def _may_pass_role(spec: ClusterSpec, aws: Aws) -> bool:
    """Ask IAM if this user may pass the profile's role to instances.

    The role of the cluster's own profile may not exist yet.
    """
    caller = str(aws.caller["Arn"])
    if spec.ec2.instance_profile:
        roles = objects.profile(aws, spec.ec2.instance_profile).get("Roles", ())
        arns = [role["Arn"] for role in roles]
    else:
        _, partition, _, _, account, _ = caller.split(":", 5)
        arns = [f"arn:{partition}:iam::{account}:role/{naming.role(spec.name, aws.region)}"]
    return all(iam.may_pass(aws, caller, arn) for arn in arns)


def _elsewhere(spec: ClusterSpec, aws: Aws, regions: Iterable[str]) -> list[str]:
    """Return the other regions that answer and have instances of this name."""
    others = [region for region in regions if region != aws.region]
    tags = {naming.RAY_CLUSTER: spec.name}
    by_region, _ = gather(others, lambda region: aws.instances(tags, region=region))

    found = []
    for region, instances in by_region.items():
        if any(instance["State"]["Name"] != "terminated" for instance in instances):
            found.append(region)
    return found


def _by_name(types: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["InstanceType"]: each for each in types}
