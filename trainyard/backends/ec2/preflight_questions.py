"""What is asked before anything of a cluster is made: this machine, then AWS, one question of a
kind, side by side.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from trainyard.backends.contract import Tools
from trainyard.backends.ec2 import naming, objects, snapshot
from trainyard.backends.ec2.desired import Group, groups
from trainyard.backends.ec2.location import Location
from trainyard.errors import TrainyardError
from trainyard.images import resolve
from trainyard.seams import ecr, iam
from trainyard.seams.aws import Aws
from trainyard.seams.ssh.many import gather
from trainyard.spec.cluster import ClusterSpec

# As AWS describes it.
Object = Mapping[str, Any]
# Answers by the names of the questions, `_questions`; what was refused, or not asked, is not among
# them.
Facts = Mapping[str, Any]
# What `ray up` runs here, and Debian's packages of it.
PROGRAMS = {"rsync": "rsync", "ssh": "openssh-client"}
# Asked here, since AWS accepts no credentials in a region that is not enabled.
HOME = "us-east-1"
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
# What a cluster can be made without knowing: this user may not be allowed to ask.
OPTIONAL = {
    "regions": "whether the region is enabled, and another one has a cluster of that name",
    "quotas": "whether the vCPU quotas suffice",
    "profile": "whether the instance profile exists",
    "may_pass_role": "whether this user may give instances a role",
    "has_spot_role": "whether the account has the role for spot instances",
}
STANDARD = ("L-1216C47A", "L-34B43A08")
GRAPHICS = ("L-DB2E81BA", "L-3819A6DF")
# The quotas of vCPUs that a family counts against, on demand and as spot (EC2 user guide, "EC2
# instance type quotas").
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
    """Return the code of the quota that a group counts against."""
    family = re.match("[a-z]+", group.instance_type)
    codes = QUOTAS.get(family[0]) if family else None
    return codes[group.spot] if codes else None


def ask(
    spec: ClusterSpec, tools: Tools, location: Location
) -> tuple[Facts, dict[str, TrainyardError]]:
    """Return the answers and the refusals, by question; of a cluster that has instances already,
    few.

    Raises PrerequisiteError without credentials.
    """
    aws = location.aws
    facts: dict[str, Any] = {
        "region": aws.region,
        "programs": [name for name in PROGRAMS if shutil.which(name)],
        "image": 0,
    }

    answers, refused = _answers({"regions": lambda: aws.described("regions", region=HOME)})
    regions = [region["RegionName"] for region in answers.get("regions", ())]
    facts |= {"regions": regions} if regions else {}

    if aws.region in (regions or [aws.region]) and not any(
        each.exists for each in snapshot.of_cluster(location)
    ):
        answers, errors = _answers(_questions(spec, tools, location, regions))
        facts = facts | answers
        refused = refused | errors

    return facts, refused


def amis(spec: ClusterSpec, aws: Aws, running: Mapping[str, str]) -> dict[str, Object]:
    """Return the AMIs that exist, by what they are called in the file: an id, or a parameter that
    holds one.

    `running` are the ids of those that instances run, by the same names: a parameter may hold
    another one since.
    """
    names = {group.ami for group in groups(spec).values()}
    ids = {}
    for name in names:
        if name in running or not name.startswith("/"):
            ids[name] = running.get(name, name)
    if parameters := sorted(names - {*ids}):
        answer = aws.call("ssm", "get_parameters", Names=parameters)
        ids |= {parameter["Name"]: parameter["Value"] for parameter in answer["Parameters"]}
    if ids:
        found = aws.described("images", {"image-id": ids.values()}, IncludeDeprecated=True)
    else:
        found = []
    return {name: image for image in found for name, ami in ids.items() if ami == image["ImageId"]}


def _answers(
    questions: Mapping[str, Callable[[], Any]],
) -> tuple[dict[str, Any], dict[str, TrainyardError]]:
    return gather(questions, lambda name: questions[name]())


def _questions(
    spec: ClusterSpec, tools: Tools, location: Location, regions: Iterable[str]
) -> dict[str, Callable[[], Any]]:
    aws = location.aws
    section = spec.ec2
    environ = location.environ
    every = groups(spec).values()
    types = {"instance-type": {group.instance_type for group in every}}
    codes = {code for group in every if (code := quota(group))}
    image = spec.image_of("head")
    registry = spec.registry.address if spec.registry and spec.registry.login == "ecr" else ""
    ask_quota = partial(aws.call, "service-quotas", "get_service_quota", ServiceCode="ec2")
    offers = partial(aws.described, "instance_type_offerings", LocationType="availability-zone")
    questions: dict[str, tuple[object, Callable[[], Any]]] = {
        "has_key": (True, location.key_file.exists),
        "zones": (True, lambda: [zone["ZoneName"] for zone in aws.described("availability_zones")]),
        "types": (True, lambda: _by_name(aws.described("instance_types", types))),
        "offers": (True, lambda: offers(types)),
        "quotas": (True, lambda: [ask_quota(QuotaCode=code)["Quota"] for code in codes]),
        "amis": (True, lambda: amis(spec, aws, {})),
        "subnets": (True, lambda: subnets(spec, aws)),
        "routes": (True, lambda: aws.described("route_tables")),
        "security_groups": (section.security_group, lambda: aws.described("security_groups")),
        "key_pairs": (
            section.key_name,
            lambda: [pair["KeyName"] for pair in aws.described("key_pairs")],
        ),
        "profile": (
            section.instance_profile,
            lambda: objects.profile(aws, str(section.instance_profile)),
        ),
        "may_pass_role": (True, lambda: _may_pass_role(spec, aws)),
        "has_spot_role": (
            any(group.spot for group in every),
            lambda: bool(objects.role(aws, SPOT_ROLE)),
        ),
        "image": (image, lambda: resolve.pulled_bytes(spec, environ, directory=tools.directory)),
        "login": (image and registry, lambda: ecr.login(registry, environ)),
        "elsewhere": (True, lambda: _elsewhere(spec, aws, regions)),
    }

    return {name: question for name, (concerns_us, question) in questions.items() if concerns_us}


def subnets(spec: ClusterSpec, aws: Aws) -> list[Object]:
    """Return where nodes may be: in the subnet of the file, else in the default ones, one for each
    of its zones.
    """
    if spec.ec2.subnet:
        return [*aws.described("subnets", {"subnet-id": [spec.ec2.subnet]})]
    found = aws.described("subnets", {"default-for-az": ["true"]})
    return [
        subnet
        for subnet in found
        if not spec.ec2.zones or subnet["AvailabilityZone"] in spec.ec2.zones
    ]


def usable(spec: ClusterSpec, found: Iterable[Object]) -> list[Object]:
    """Return the subnets that give nodes addresses by which they are reached."""
    return [
        subnet for subnet in found if spec.ec2.use_internal_ips or subnet["MapPublicIpOnLaunch"]
    ]


def _may_pass_role(spec: ClusterSpec, aws: Aws) -> bool:
    """Say whether this user may give instances the role of the file's profile, or the one that is
    to be made.
    """
    caller = str(aws.caller["Arn"])
    _, partition, _, _, account, _ = caller.split(":", 5)
    own = {"Arn": f"arn:{partition}:iam::{account}:role/{naming.role(spec.name, aws.region)}"}
    if spec.ec2.instance_profile:
        roles = objects.profile(aws, spec.ec2.instance_profile).get("Roles", ())
    else:
        roles = [own]
    return all(iam.may_pass(aws, caller, role["Arn"]) for role in roles)


def _elsewhere(spec: ClusterSpec, aws: Aws, regions: Iterable[str]) -> list[str]:
    """Return which other regions have instances of the name; one that refuses this user has none of
    his.
    """
    others = [region for region in regions if region != aws.region]
    instances, _ = gather(
        others, lambda region: aws.instances({naming.RAY_CLUSTER: spec.name}, region=region)
    )
    return [
        name
        for name, found in instances.items()
        if {*(each["State"]["Name"] for each in found)} - {"terminated"}
    ]


def _by_name(types: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["InstanceType"]: each for each in types}
