"""What is wrong with a cluster file, its AWS account and this machine, before anything is made:
every rule, at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature

from trainyard.backends.contract import Tools
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
from trainyard.spec.units import format_size
from trainyard.steps import YES, Step, nothing
from trainyard.wording import counted, did_you_mean, named

GIB = 2**30
# So many times what is pulled of an image must fit beside what the AMI holds: sent, unpacked, and
# once more.
IMAGES = 3
# What their makers call AMIs that hold nothing but an operating system.
PLAIN = re.compile(
    r"(?!.*gpu)(ubuntu/images/|al20\d\d-ami|amzn2?-ami|debian-\d|RHEL-|suse-|Rocky-)", re.IGNORECASE
)
# Commands of the file's own, by which instances may get a driver.
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


def steps(spec: ClusterSpec, tools: Tools, location: Location) -> list[Step]:
    """Return a step for each thing that could not be checked. Raises PrerequisiteError with all
    that is wrong.
    """
    facts, refused = ask(spec, tools, location)
    refuse(spec, facts, {name: error for name, error in refused.items() if name not in OPTIONAL})
    return [
        Step(
            f"unchecked:{name}",
            f"Not checked: {what} ({refused[name].what})",
            done=lambda: YES,
            do=nothing,
        )
        for name, what in OPTIONAL.items()
        if name in refused
    ]


def refuse(spec: ClusterSpec, facts: Facts, refused: Mapping[str, TrainyardError]) -> None:
    """Raise PrerequisiteError with everything that is wrong, and with what AWS refuses to
    answer.
    """
    if found := (*problems(spec, facts), *by_host(refused)):
        raise PrerequisiteError(
            f"cluster {spec.name} cannot be made in {facts['region']} as things are",
            problems=found,
            hint="Nothing was made. Mend them, and repeat the same command.",
        )


def problems(spec: ClusterSpec, facts: Facts) -> Iterator[Problem]:
    """Yield what is wrong, causes before what depends on them; a rule of which a fact is not known
    has none.
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
            yield Problem(
                "this machine",
                f"has no {program}, which `ray up` needs: sudo apt-get install {package}",
            )


def _region(spec: ClusterSpec, region: str, regions: Names) -> Iterator[Problem]:
    if region not in regions:
        remedy = (
            did_you_mean(region, regions) or f": aws account enable-region --region-name {region}"
        )
        yield Problem(f"region {region}", f"is none that this account has enabled{remedy}")


def _elsewhere(spec: ClusterSpec, elsewhere: Names) -> Iterator[Problem]:
    for region in elsewhere:
        remedy = (
            "give this one another name, or remove that: trainyard cluster.down --set "
            f"ec2.region={region}"
        )
        yield Problem(f"cluster {spec.name}", f"exists in {region}: {remedy}")


def _subnets(
    spec: ClusterSpec, region: str, zones: Names, subnets: Objects, routes: Objects
) -> Iterator[Problem]:
    """Yield what is wrong with zones, and with the subnets where nodes may be: no room, or not
    reached.
    """
    if spec.ec2.subnet:
        subject = f"subnet {spec.ec2.subnet}"
    else:
        subject = "default VPC"

    if strange := [zone for zone in spec.ec2.zones if zone not in zones]:
        yield Problem("ec2.zones", f"{region} has no {named(strange)}, only {named(zones, most=9)}")
        return

    reachable = usable(spec, subnets)
    if not subnets:
        missing = f"has no subnet in {named(spec.ec2.zones or [region], most=9)}: {NAME_ONE}"
        yield Problem(subject, f"does not exist in {region}" if spec.ec2.subnet else missing)
    elif not reachable:
        yield Problem(
            subject,
            f"gives nodes no public addresses: {VPN}; else name a public subnet, `ec2.subnet`",
        )
    else:
        yield from (Problem(subject, message) for message in _unreached(spec, reachable, routes))
        free = sum(subnet["AvailableIpAddressCount"] for subnet in reachable)
        if free < (nodes := sum(group.most for group in groups(spec).values())):
            message = (
                f"has {free} addresses left, and the cluster {nodes} nodes at its largest: "
                "name another one"
            )
            yield Problem(subject, message)


def _unreached(spec: ClusterSpec, subnets: Objects, routes: Objects) -> Iterator[str]:
    """Yield why nodes would not get out, or nobody to them; of several subnets, that it would be a
    matter of chance.
    """
    by_way: dict[str, list[str]] = {}
    for subnet in subnets:
        by_way.setdefault(_way_out(subnet, routes), []).append(subnet["SubnetId"])

    have_none = spec.ec2.use_internal_ips and spec.ec2.subnet
    have_addresses = not have_none and any(subnet["MapPublicIpOnLaunch"] for subnet in subnets)
    if len(by_way) > 1:
        ways = "; ".join(
            f"{way}: {named(sorted(names), most=9)}" for way, names in sorted(by_way.items())
        )
        yield f"has subnets of different kinds, and chance would choose ({ways}): {NAME_ONE}"
    elif "none" in by_way:
        yield (
            "has no route out of its VPC, and nodes must reach AWS: route it to a NAT gateway, "
            "or name another"
        )
    elif "private" in by_way and not spec.ec2.use_internal_ips:
        yield f"has no route to an internet gateway, and nobody reaches its public addresses: {VPN}"
    elif "public" in by_way and not have_addresses:
        yield (
            "is routed to an internet gateway, and nodes without public addresses get nowhere: "
            "name a private one"
        )


def _way_out(subnet: Object, tables: Objects) -> str:
    """Return how nodes get out: `public`, by addresses of their own, `private`, by somebody else's,
    or `none`.
    """
    tables = [table for table in tables if table["VpcId"] == subnet["VpcId"]]
    own = []
    for each in tables:
        if any(to.get("SubnetId") == subnet["SubnetId"] for to in each["Associations"]):
            own.append(each)

    main = [each for each in tables if any(to.get("Main") for to in each["Associations"])]
    routes = []
    for table in own or main:
        for route in table["Routes"]:
            if route.get("State") == "active":
                routes.append(route)

    gateways = []
    for to in routes:
        if to.get("DestinationCidrBlock") == "0.0.0.0/0":
            gateways.append(str(to.get("GatewayId", "")))

    if any(name.startswith("igw-") for name in gateways):
        return "public"
    if gateways:
        return "private"

    return "none"


def _security_group(
    spec: ClusterSpec, region: str, security_groups: Objects, subnets: Objects
) -> Iterator[Problem]:
    subject = f"security group {spec.ec2.security_group}"
    vpcs = {each["VpcId"] for each in subnets}
    own = [each["VpcId"] for each in security_groups if each["GroupId"] == spec.ec2.security_group]
    if not own:
        yield Problem(subject, f"does not exist in {region}")
    elif vpcs and own[0] not in vpcs:
        remedy = "name a subnet and a security group of one VPC"
        yield Problem(
            subject, f"is in VPC {own[0]}, and nodes would be in {named(sorted(vpcs))}: {remedy}"
        )


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
            message = (
                f"{name} is not offered in {named(sorted(zones))}, only in "
                f"{named(sorted(offered), most=9)}"
            )
            yield Problem(subject, message)
        else:
            for each in _lacking(group.size, types[name]):
                yield Problem(subject, f"{name} has {each}")


def _lacking(size: Head | WorkerGroup, described: Object) -> Iterator[str]:
    """Yield of what an instance has less than its node is to have."""
    vcpus = described["VCpuInfo"]["DefaultVCpus"]
    memory = described["MemoryInfo"]["SizeInMiB"] * 2**20
    if (size.cpus or 0) > vcpus:
        yield f"{counted(vcpus, 'vCPU')}, and `cpus` is {size.cpus}"
    if (size.memory or 0) > memory:
        yield f"{format_size(memory)} of memory, and `memory` is {format_size(size.memory or 0)}"
    if size.gpus > (gpus := _gpus(described)):
        yield f"{counted(gpus, 'NVIDIA GPU')}, and `gpus` is {size.gpus}"


def _quotas(spec: ClusterSpec, region: str, types: ByName, quotas: Objects) -> Iterator[Problem]:
    for bound in quotas:
        code = bound["QuotaCode"]
        most = int(bound["Value"])
        ours = []

        for group in groups(spec).values():
            if quota(group) == code and group.instance_type in types:
                ours.append(group)

        vcpus = {}
        for group in ours:
            vcpus[group.name] = group.most * types[group.instance_type]["VCpuInfo"]["DefaultVCpus"]

        if (needed := sum(vcpus.values())) > most:
            parts = named([f"{name} {count}" for name, count in vcpus.items()], most=9)
            yield Problem(
                f'quota "{bound["QuotaName"]}"',
                f"is {most} vCPUs in {region}, and the cluster at its largest has {needed} "
                f"({parts}): aws "
                "service-quotas request-service-quota-increase --service-code ec2 --quota-code "
                f"{code} "
                f"--desired-value {needed} --region {region}",
            )


def _amis(spec: ClusterSpec, region: str, amis: ByName, types: ByName) -> Iterator[Problem]:
    """Yield which AMIs there are not, or not for the instances of a group: architecture, driver."""
    for name in dict.fromkeys(
        group.ami for group in groups(spec).values() if group.ami not in amis
    ):
        yield Problem(f"AMI {name}", f"does not exist in {region}, or not for this account")

    for group in groups(spec).values():
        image = amis.get(group.ami)
        described = types.get(group.instance_type)
        if image is None or described is None:
            continue

        runs = described["ProcessorInfo"]["SupportedArchitectures"]
        if image["Architecture"] not in runs:
            message = (
                f"{group.instance_type} is {named(runs)}, and AMI {group.ami} is "
                f"{image['Architecture']}"
            )
            yield Problem(f"group {group.name}", message)
        elif (
            _gpus(described)
            and PLAIN.match(image.get("Name", ""))
            and not PREPARES & {*spec.ec2.ray}
        ):
            remedy = (
                "leave `ami` out, name one that has, or install it in "
                "ec2.ray.initialization_commands"
            )
            message = f"AMI {group.ami} ({image['Name']}) has no NVIDIA driver: {remedy}"
            yield Problem(f"group {group.name}", message)


def _disks(spec: ClusterSpec, amis: ByName, image: int) -> Iterator[Problem]:
    for group in (group for group in groups(spec).values() if group.ami in amis):
        ami = amis[group.ami]
        volumes = {}
        for each in ami.get("BlockDeviceMappings", ()):
            volumes[each.get("DeviceName")] = each.get("Ebs", {})
        own = GIB * int(volumes.get(ami.get("RootDeviceName"), {}).get("VolumeSize", 0))
        if group.disk < (least := own + IMAGES * image):
            parts = (
                f"{own / GIB:.0f} GiB, and {IMAGES} times the image is "
                f"{IMAGES * image / GIB:.1f} GiB"
            )
            message = f"a disk of {group.disk / GIB:.0f} GiB is too small: the AMI takes {parts}"
            yield Problem(f"group {group.name}", f"{message}: disk: {-(-least // GIB)}GiB")


def _key(spec: ClusterSpec, region: str, key_pairs: Names, has_key: bool) -> Iterator[Problem]:
    name = spec.ec2.key_name
    subject = f"key pair {spec.ec2.key_name}"
    if name not in key_pairs:
        yield Problem(subject, f"does not exist in {region}: leave `key_name` out, and one is made")
    if not has_key:
        file = spec.ec2.key_file or f"~/.ssh/{name}.pem"
        yield Problem(
            subject,
            f"its private key is not on this machine, in {file}: write where it is, `key_file`",
        )


def _profile(spec: ClusterSpec, profile: Object) -> Iterator[Problem]:
    if not profile:
        subject = f"instance profile {spec.ec2.instance_profile}"
        yield Problem(subject, "does not exist: leave `instance_profile` out, and one is made")


def _gpus(described: Object) -> int:
    gpus = described.get("GpuInfo", {}).get("Gpus", ())
    return sum(gpu["Count"] for gpu in gpus if gpu["Manufacturer"].lower() == "nvidia")


# Each is given the facts that its parameters name.
RULES: Sequence[Callable[..., Iterator[Problem]]] = (
    *(
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
    ),
)
# What is wrong where one of these is false.
CLAIMS = {
    "may_pass_role": Problem(
        "this user",
        "may not give instances their role, iam:PassRole: who administers IAM can allow it",
    ),
    "has_spot_role": Problem(
        "AWS account",
        "has no role for spot instances yet: aws iam create-service-linked-role "
        "--aws-service-name spot.amazonaws.com",
    ),
}
