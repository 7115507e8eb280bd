"""What is asked before anything of a cluster is made: this machine, then AWS, one question of a kind, side by side."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainyard.backends.ec2 import naming, snapshot
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.preflight_facts import (
    PROGRAMS,
    Facts,
    Object,
    ecr_address,
    groups,
    is_enabled,
    quota_of,
)
from trainyard.errors import TrainyardError
from trainyard.seams import ecr, iam
from trainyard.seams.aws import Aws
from trainyard.seams.ssh import keys
from trainyard.seams.ssh.many import gather
from trainyard.spec.cluster import ClusterSpec

Questions = dict[str, Callable[[], Any]]
Only = Mapping[str, Iterable[str]]
OFFERS = ("ec2", "describe_instance_type_offerings", "InstanceTypeOfferings")
QUOTA = ("service-quotas", "get_service_quota")
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
# What we do, and Ray's autoscaler on the head by the role of its instance profile; how a node logs in to ECR.
LAUNCH = ("ec2:RunInstances", "ec2:CreateTags", "ec2:TerminateInstances")
LOGIN = ("ecr:GetAuthorizationToken",)
PASS = ("iam:PassRole",)
MAKE_ROLE = ("iam:CreateRole", "iam:PutRolePolicy", "iam:CreateInstanceProfile", "iam:AddRoleToInstanceProfile")
# What a cluster can be made without knowing: this user may not be allowed to ask.
OPTIONAL = {
    "regions": "whether the region is enabled",
    "endpoints": "whether the VPC has an endpoint of EC2",
    "quotas": "whether the vCPU quotas suffice",
    "profile": "whether the instance profile exists",
    "denied": "whether this user may launch instances, and give them a role",
    "denied_to_nodes": "whether the role of the instance profile may launch instances",
    "has_spot_role": "whether the account has the role for spot instances",
    "elsewhere": "whether another region has a cluster of that name",
}


def ask(spec: ClusterSpec, location: Location, *, image: Callable[[], int]) -> Facts:
    """Ask this machine, then AWS; without credentials or the region nothing else, nor where instances run already.

    `image` tells how many bytes a pull takes.
    """
    aws, key = location.aws, location.key_file
    known: dict[str, Any] = {"programs": [program for program in PROGRAMS if shutil.which(program)]}
    known["public_key"] = keys.public_key(key) if key.exists() else ""
    answers, refused = _answers(_of_account(spec, aws))
    known |= answers
    if "regions" in refused or is_enabled(known["regions"].get(aws.region)):
        found, failed = _answers({"identity": lambda: aws.call("sts", "get_caller_identity")})
        # Without credentials nothing else was answered either.
        refused = failed or refused
        if found and not any(instance.exists for instance in snapshot.of_cluster(location)):
            answers, errors = _answers(_of_cluster(spec, location, found["identity"]["Arn"], known, image))
            answers.pop("login", None)
            known, refused = known | answers, refused | errors
    errors = {name: error for name, error in refused.items() if name not in OPTIONAL}
    unknown = (f"{what} ({refused[name].what})" for name, what in OPTIONAL.items() if name in refused)
    return Facts(aws.region, **known, errors=tuple(errors.values()), unknown=tuple(unknown))


def _answers(questions: Questions) -> tuple[dict[str, Any], dict[str, TrainyardError]]:
    return gather(questions, lambda name: questions[name]())


def _of_account(spec: ClusterSpec, aws: Aws) -> Questions:
    """Return what is asked elsewhere than in the region: where that is not enabled, no credentials are valid."""
    homes = {"cn-": "cn-north-1", "us-gov-": "us-gov-west-1"}
    home = next((home for prefix, home in homes.items() if aws.region.startswith(prefix)), "us-east-1")
    questions: Questions = {
        "regions": lambda: _listed(aws, "regions", "Regions", "RegionName", region=home, AllRegions=True),
    }
    if name := spec.ec2.instance_profile:
        named = {"InstanceProfileName": name}
        questions["profile"] = lambda: aws.find("iam", "get_instance_profile", **named).get("InstanceProfile", {})
    return questions


def _of_cluster(
    spec: ClusterSpec, location: Location, caller: str, known: Mapping[str, Any], image: Callable[[], int]
) -> Questions:
    regions = [name for name, region in known.get("regions", {}).items() if is_enabled(region)]
    questions = _of_region(spec, location.aws) | _of_rights(spec, location.aws, caller, known.get("profile"))
    questions |= {"image": image, "elsewhere": lambda: _elsewhere(spec, location.aws, regions)}
    if registry := ecr_address(spec):
        questions["login"] = lambda: ecr.login(registry, location.environ)
    return questions


def _of_region(spec: ClusterSpec, aws: Aws) -> Questions:
    types = {"instance-type": {group.instance_type for group in groups(spec)}}
    codes = {group.quota for group in groups(spec) if group.quota}
    questions: Questions = {
        "zones": lambda: _listed(aws, "availability_zones", "AvailabilityZones", "ZoneName"),
        "types": lambda: _listed(aws, "instance_types", "InstanceTypes", "InstanceType", types),
        "offers": lambda: aws.pages(*OFFERS, LocationType="availability-zone", Filters=_filters(types)),
        "quotas": lambda: {code: aws.call(*QUOTA, ServiceCode="ec2", QuotaCode=code)["Quota"] for code in codes},
        "used": lambda: _used(aws),
        "amis": lambda: _amis(aws, {group.ami for group in groups(spec)}),
        "vpcs": lambda: _listed(aws, "vpcs", "Vpcs", "VpcId", {"is-default": ["true"]}),
        "subnets": lambda: _listed(aws, "subnets", "Subnets", "SubnetId"),
        "routes": lambda: _listed(aws, "route_tables", "RouteTables", "RouteTableId"),
        "endpoints": lambda: _listed(aws, "vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
    }
    if group := spec.ec2.security_group:
        only = {"group-id": [group]}
        questions["security_groups"] = lambda: _listed(aws, "security_groups", "SecurityGroups", "GroupId", only)
    if key := spec.ec2.key_name:
        named, more = {"key-name": [key]}, {"IncludePublicKey": True}
        questions["key_pairs"] = lambda: _listed(aws, "key_pairs", "KeyPairs", "KeyName", named, **more)
    return questions


def _of_rights(spec: ClusterSpec, aws: Aws, caller: str, profile: Object | None) -> Questions:
    _, partition, _, _, account, _ = caller.split(":", 5)
    # Policies name resources, and few of them all.
    instances = f"arn:{partition}:ec2:{aws.region}:{account}:instance/*"
    named = [str(role["Arn"]) for role in (profile or {}).get("Roles", ())]
    role = named[0] if named else f"arn:{partition}:iam::{account}:role/{naming.resource(spec.name)}"
    rights: dict[str, Sequence[str]] = {instances: LAUNCH}
    if named or not spec.ec2.instance_profile:
        rights[role] = PASS if named else (*MAKE_ROLE, *PASS)
    questions: Questions = {"denied": lambda: _denied(aws, iam.principal(aws, caller), rights)}
    if named:
        of_nodes = (*LAUNCH, *(LOGIN if ecr_address(spec) else ()))
        questions["denied_to_nodes"] = lambda: _denied(aws, role, {instances: of_nodes})
    if any(group.spot for group in groups(spec)):
        questions["has_spot_role"] = lambda: bool(aws.find("iam", "get_role", RoleName=SPOT_ROLE))
    return questions


def _denied(aws: Aws, who: str, rights: Mapping[str, Sequence[str]]) -> list[str]:
    return [action for resource, actions in rights.items() for action in iam.denied(aws, who, actions, resource)]


def _listed(aws: Aws, what: str, key: str, name: str, only: Only | None = None, **more: Any) -> dict[str, Object]:
    answer = aws.pages("ec2", f"describe_{what}", key, Filters=_filters(only or {}), **more)
    return {each[name]: each for each in answer}


def _filters(only: Only) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": sorted(values)} for name, values in only.items()]


def _used(aws: Aws) -> dict[str, int]:
    """Return how many vCPUs count against each quota."""
    only = _filters({"instance-state-name": ["pending", "running"]})
    used: dict[str, int] = {}
    for reservation in aws.pages("ec2", "describe_instances", "Reservations", Filters=only):
        for instance in reservation["Instances"]:
            cpus = instance.get("CpuOptions", {})
            if code := quota_of(instance["InstanceType"], spot=instance.get("InstanceLifecycle") == "spot"):
                used[code] = used.get(code, 0) + cpus.get("CoreCount", 1) * cpus.get("ThreadsPerCore", 1)
    return used


def _amis(aws: Aws, names: Iterable[str]) -> dict[str, Object]:
    """Return the AMIs by what they are called in the file: an id, or a parameter that holds one."""
    ids = {name: name for name in names if not name.startswith("/")}
    if parameters := sorted({*names} - {*ids}):
        answer = aws.call("ssm", "get_parameters", Names=parameters)
        ids |= {parameter["Name"]: parameter["Value"] for parameter in answer["Parameters"]}
    only = {"image-id": ids.values()}
    described = _listed(aws, "images", "Images", "ImageId", only, IncludeDeprecated=True) if ids else {}
    return {name: described[ami] for name, ami in ids.items() if ami in described}


def _elsewhere(spec: ClusterSpec, aws: Aws, regions: Iterable[str]) -> dict[str, int]:
    """Return how many instances of the name other regions have. Raises the error of a region where none has any."""
    others = [region for region in regions if region != aws.region]
    found, errors = gather(others, lambda region: aws.instances({naming.RAY_CLUSTER: spec.name}, region=region))
    counts = {
        region: sum(each["State"]["Name"] != "terminated" for each in instances) for region, instances in found.items()
    }
    for error in () if any(counts.values()) else errors.values():
        raise error
    return {region: count for region, count in counts.items() if count}
