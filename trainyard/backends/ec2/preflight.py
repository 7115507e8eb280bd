"""Rules for the file, account and machine, checked before any change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature

from trainyard.backends.contract import Site
from trainyard.backends.ec2.desired import groups
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.preflight_questions import (
    OPTIONAL,
    PROGRAMS,
    Facts,
    Object,
    ask,
    quota,
    usable,
)
from trainyard.errors import PrerequisiteError, Problem, TrainyardError
from trainyard.seams.ssh.many import by_host
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.groups import Head, WorkerGroup
from trainyard.spec.units import GIB, format_size
from trainyard.steps import YES, Step, nothing, warning
from trainyard.wording import counted, did_you_mean, named

# In addition to the AMI, the disk must hold three times an image's pulled bytes: the compressed
# layers, the unpacked files, and as much again in reserve.
IMAGES = 3
# Names of vendors' AMIs with a plain operating system, without an NVIDIA driver.
PLAIN = re.compile(
    r"(?!.*gpu)(ubuntu/images/|al20\d\d-ami|amzn2?-ami|debian-\d|RHEL-|suse-|Rocky-)", re.IGNORECASE
)
# Commands in `ec2.ray` that may install an NVIDIA driver: with one, a plain AMI is accepted.
PREPARES = {
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
}
VPN = (
    "`use_internal_ips: true` if this machine reaches the VPC's private addresses, such as by a VPN"
)
Names = Sequence[str]
Objects = Sequence[Object]
ByName = Mapping[str, Object]
NAME_ONE = "name one, `ec2.subnet`"


def steps(spec: ClusterSpec, site: Site, location: Location) -> list[Step]:
    """Check everything; raise one PrerequisiteError with all problems.

    Returns steps without action: one for each optional check that AWS did not
    answer, and one with a warning for each remark.
    """
    facts, errors = ask(spec, site, location)
    refuse(spec, facts, {name: error for name, error in errors.items() if name not in OPTIONAL})

    unchecked = []
    for name, subject in OPTIONAL.items():
        if name in errors:
            title = f"Not checked: {subject} ({errors[name].what})"
            unchecked.append(Step(f"unchecked:{name}", title, done=lambda: YES, do=nothing))

    remarked = []
    for group, remark in remarks(spec, facts).items():
        done = partial(warning, remark)
        remarked.append(
            Step(f"remark:{group}", f"Count the GPUs of {group}", done=done, do=nothing)
        )
    return [*unchecked, *remarked]


def remarks(spec: ClusterSpec, facts: Facts) -> dict[str, str]:
    """Return remarks on groups with GPUs that the file does not mention."""
    found = {}
    types = facts.get("types", {})
    for name, group in groups(spec).items():
        gpus = _gpus(types.get(group.instance_type, {}))
        if gpus and "gpus" not in group.size.model_fields_set:
            found[name] = (
                f"group {name}: {group.instance_type} has {counted(gpus, 'NVIDIA GPU')}, and Ray "
                f"gets none: write `gpus: {gpus}`, or `gpus: 0` if that is meant"
            )
    return found


def refuse(spec: ClusterSpec, facts: Facts, errors: Mapping[str, TrainyardError]) -> None:
    """Raise one PrerequisiteError if there are problems or `errors`.

    `errors` are AWS's errors by question.
    """
    found = (*problems(spec, facts), *by_host(errors))
    if found:
        raise PrerequisiteError(
            f"cluster {spec.name} cannot be made in {facts['region']} yet",
            problems=found,
            hint="Nothing was made. Solve these problems, and repeat the same command.",
        )


def problems(spec: ClusterSpec, facts: Facts) -> Iterator[Problem]:
    """Yield the problems that RULES find: causes come before consequences.

    A rule's parameters name its facts. A rule with an unknown fact is skipped.
    """
    for rule in RULES:
        _, *needs = signature(rule).parameters
        if facts.keys() >= {*needs}:
            yield from rule(spec, *(facts[name] for name in needs))
    for name, problem in CLAIMS.items():
        if not facts.get(name, True):
            yield problem


def _programs(spec: ClusterSpec, programs: Names) -> Iterator[Problem]:
    for program, package in PROGRAMS.items():
        if program not in programs:
            message = f"has no {program}, which `ray up` needs: sudo apt-get install {package}"
            yield Problem("this machine", message)


def _region(spec: ClusterSpec, region: str, regions: Names) -> Iterator[Problem]:
    if region not in regions:
        enable = f": aws account enable-region --region-name {region}"
        remedy = did_you_mean(region, regions) or enable
        yield Problem(f"region {region}", f"is not enabled for this account{remedy}")


def _elsewhere(spec: ClusterSpec, elsewhere: Names) -> Iterator[Problem]:
    for region in elsewhere:
        remedy = (
            "give this cluster another name, or remove that one: trainyard cluster.down --set "
            f"ec2.region={region}"
        )
        yield Problem(f"cluster {spec.name}", f"exists in {region}: {remedy}")


def _subnets(
    spec: ClusterSpec, region: str, zones: Names, subnets: Objects, routes: Objects
) -> Iterator[Problem]:
    strange = [zone for zone in spec.ec2.zones if zone not in zones]
    if strange:
        yield Problem("ec2.zones", f"{region} has no {named(strange)}, only {named(zones, most=9)}")
        return

    subject = f"subnet {spec.ec2.subnet}" if spec.ec2.subnet else "default VPC"
    usable_subnets = usable(spec, subnets)
    if subnets and usable_subnets:
        for message in (*_unreached(spec, usable_subnets, routes), *_full(spec, usable_subnets)):
            yield Problem(subject, message)
    elif subnets:
        message = f"gives nodes no public addresses: {VPN}; else name a public subnet, `ec2.subnet`"
        yield Problem(subject, message)
    elif spec.ec2.subnet:
        yield Problem(subject, f"does not exist in {region}")
    else:
        places = named(spec.ec2.zones or [region], most=9)
        yield Problem(subject, f"has no subnet in {places}: {NAME_ONE}")


def _full(spec: ClusterSpec, subnets: Objects) -> Iterator[str]:
    free = sum(subnet["AvailableIpAddressCount"] for subnet in subnets)
    nodes = sum(group.most for group in groups(spec).values())
    if free < nodes:
        yield (
            f"has {free} addresses left, and the cluster has {nodes} nodes at its largest: "
            "name another one"
        )


def _unreached(spec: ClusterSpec, subnets: Objects, routes: Objects) -> Iterator[str]:
    """Yield why nodes cannot reach AWS, or this machine cannot reach nodes.

    Different routes are a problem too, because AWS would choose a subnet by
    chance.
    """
    by_way: dict[str, list[str]] = {}
    for subnet in subnets:
        by_way.setdefault(_way_out(subnet, routes), []).append(subnet["SubnetId"])

    gets_no_public_ip = spec.ec2.use_internal_ips and spec.ec2.subnet
    have_addresses = not gets_no_public_ip and any(
        subnet["MapPublicIpOnLaunch"] for subnet in subnets
    )
    if len(by_way) > 1:
        ways = [f"{way}: {named(sorted(ids), most=9)}" for way, ids in sorted(by_way.items())]
        yield (
            "has subnets of different kinds, and AWS would choose by chance "
            f"({'; '.join(ways)}): {NAME_ONE}"
        )
    elif "none" in by_way:
        yield (
            "has no route out of its VPC, and nodes must reach AWS: route it to a NAT gateway, "
            "or name another"
        )
    elif "private" in by_way and not spec.ec2.use_internal_ips:
        yield (
            f"has no route to an internet gateway, and its public addresses are not reached: {VPN}"
        )
    elif "public" in by_way and not have_addresses:
        yield (
            "is routed to an internet gateway, and nodes without public addresses have no way out: "
            "name a private one"
        )


def _way_out(subnet: Object, tables: Objects) -> str:
    """Return a subnet's default route: `public`, `private` or `none`.

    A `public` route leads to an internet gateway, a `private` one elsewhere.
    """
    own = []
    main = []
    for table in tables:
        if table["VpcId"] != subnet["VpcId"]:
            continue
        for association in table["Associations"]:
            if association.get("SubnetId") == subnet["SubnetId"]:
                own.append(table)
            if association.get("Main"):
                main.append(table)

    gateways = []
    for table in own or main:
        for route in table["Routes"]:
            is_default = route.get("DestinationCidrBlock") == "0.0.0.0/0"
            if is_default and route.get("State") == "active":
                gateways.append(str(route.get("GatewayId", "")))

    if any(name.startswith("igw-") for name in gateways):
        return "public"
    return "private" if gateways else "none"


def _security_group(
    spec: ClusterSpec, region: str, security_groups: Objects, subnets: Objects
) -> Iterator[Problem]:
    subject = f"security group {spec.ec2.security_group}"
    vpcs = {each["VpcId"] for each in subnets}
    own = [each["VpcId"] for each in security_groups if each["GroupId"] == spec.ec2.security_group]
    if not own:
        yield Problem(subject, f"does not exist in {region}")
    elif vpcs and own[0] not in vpcs:
        elsewhere = f"is in VPC {own[0]}, and nodes would be in {named(sorted(vpcs))}"
        yield Problem(subject, f"{elsewhere}: name a subnet and a security group of one VPC")


def _types(
    spec: ClusterSpec, region: str, types: ByName, offers: Objects, subnets: Objects
) -> Iterator[Problem]:
    zones = {subnet["AvailabilityZone"] for subnet in subnets}
    for group in groups(spec).values():
        subject = f"group {group.name}"
        name = group.instance_type
        offered = {offer["Location"] for offer in offers if offer["InstanceType"] == name}

        if name not in types:
            yield Problem(subject, f"{name} is no instance type of {region}")
        elif zones and not zones & offered:
            others = named(sorted(offered), most=9)
            message = f"{name} is not offered in {named(sorted(zones))}, only in {others}"
            yield Problem(subject, message)
        else:
            for resource in _lacking(group.size, types[name]):
                yield Problem(subject, f"{name} has {resource}")


def _lacking(size: Head | WorkerGroup, described: Object) -> Iterator[str]:
    """Yield each resource of which an instance type has too little."""
    vcpus = described["VCpuInfo"]["DefaultVCpus"]
    memory = described["MemoryInfo"]["SizeInMiB"] * 2**20
    if (size.cpus or 0) > vcpus:
        yield f"{counted(vcpus, 'vCPU')}, and `cpus` is {size.cpus}"
    if (size.memory or 0) > memory:
        yield f"{format_size(memory)} of memory, and `memory` is {format_size(size.memory or 0)}"
    gpus = _gpus(described)
    if size.gpus > gpus:
        yield f"{counted(gpus, 'NVIDIA GPU')}, and `gpus` is {size.gpus}"


def _quotas(spec: ClusterSpec, region: str, types: ByName, quotas: Objects) -> Iterator[Problem]:
    for bound in quotas:
        code = bound["QuotaCode"]
        most = int(bound["Value"])
        vcpus = {}
        for group in groups(spec).values():
            if quota(group) == code and group.instance_type in types:
                per_instance = types[group.instance_type]["VCpuInfo"]["DefaultVCpus"]
                vcpus[group.name] = group.most * per_instance

        needed = sum(vcpus.values())
        if needed > most:
            parts = named([f"{name} {count}" for name, count in vcpus.items()], most=9)
            remedy = (
                "aws service-quotas request-service-quota-increase --service-code ec2 "
                f"--quota-code {code} --desired-value {needed} --region {region}"
            )
            yield Problem(
                f'quota "{bound["QuotaName"]}"',
                f"is {most} vCPUs in {region}, and the cluster at its largest has {needed} "
                f"({parts}): {remedy}",
            )


def _amis(spec: ClusterSpec, region: str, amis: ByName, types: ByName) -> Iterator[Problem]:
    names = dict.fromkeys(group.ami for group in groups(spec).values())
    for name in names:
        if name not in amis:
            yield Problem(f"AMI {name}", f"does not exist in {region}, or not for this account")

    for group in groups(spec).values():
        image = amis.get(group.ami)
        described = types.get(group.instance_type)
        if image is None or described is None:
            continue

        supported = described["ProcessorInfo"]["SupportedArchitectures"]
        architecture = image["Architecture"]
        has_driver = PREPARES & spec.ec2.ray.keys() or not PLAIN.match(image.get("Name", ""))
        if architecture not in supported:
            instances = f"{group.instance_type} is {named(supported)}"
            message = f"{instances}, and AMI {group.ami} is {architecture}"
            yield Problem(f"group {group.name}", message)
        elif _gpus(described) and not has_driver:
            remedy = (
                "leave `ami` out, name one that has it, or install it in "
                "ec2.ray.initialization_commands"
            )
            message = f"AMI {group.ami} ({image['Name']}) has no NVIDIA driver: {remedy}"
            yield Problem(f"group {group.name}", message)


def _disks(spec: ClusterSpec, amis: ByName, image: int) -> Iterator[Problem]:
    for group in groups(spec).values():
        if group.ami not in amis:
            continue

        root = _root_bytes(amis[group.ami])
        pulled = IMAGES * image
        least = root + pulled
        if group.disk < least:
            yield Problem(
                f"group {group.name}",
                f"a disk of {group.disk / GIB:.0f} GiB is too small: the AMI takes "
                f"{root / GIB:.0f} GiB, and {IMAGES} times the image is "
                f"{pulled / GIB:.1f} GiB: disk: {-(-least // GIB)}GiB",
            )


def _root_bytes(ami: Object) -> int:
    for mapping in ami.get("BlockDeviceMappings", ()):
        if mapping.get("DeviceName") == ami.get("RootDeviceName"):
            return GIB * int(mapping.get("Ebs", {}).get("VolumeSize", 0))
    return 0


def _key(spec: ClusterSpec, region: str, key_pairs: Names, has_key: bool) -> Iterator[Problem]:
    name = spec.ec2.key_name
    subject = f"key pair {spec.ec2.key_name}"
    if name not in key_pairs:
        yield Problem(subject, f"does not exist in {region}: leave `key_name` out, and one is made")
    if not has_key:
        file = spec.ec2.key_file or f"~/.ssh/{name}.pem"
        message = f"its private key is not on this machine, in {file}: set `key_file` to its path"
        yield Problem(subject, message)


def _profile(spec: ClusterSpec, profile: Object) -> Iterator[Problem]:
    if not profile:
        subject = f"instance profile {spec.ec2.instance_profile}"
        yield Problem(subject, "does not exist: leave `instance_profile` out, and one is made")


def _gpus(described: Object) -> int:
    gpus = described.get("GpuInfo", {}).get("Gpus", ())
    return sum(gpu["Count"] for gpu in gpus if gpu["Manufacturer"].lower() == "nvidia")


RULES: Sequence[Callable[..., Iterator[Problem]]] = (
    _programs,
    _region,
    _elsewhere,
    _subnets,
    _security_group,
    _types,
    _quotas,
    _amis,
    _disks,
    _key,
    _profile,
)
# The problem to report if a fact is false, by the fact's name.
CLAIMS = {
    "may_pass_role": Problem(
        "this user",
        "may not give instances their role, iam:PassRole: an administrator of IAM can allow it",
    ),
    "has_spot_role": Problem(
        "AWS account",
        "has no role for spot instances yet: aws iam create-service-linked-role "
        "--aws-service-name spot.amazonaws.com",
    ),
}
