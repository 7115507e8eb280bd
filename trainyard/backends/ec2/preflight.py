"""What is wrong with a cluster file, its AWS account and this machine, before anything is made: every rule, at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trainyard.backends.contract import Tools
from trainyard.backends.ec2 import preflight_network as network
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.preflight_facts import PROGRAMS, Facts, Found, Group, Object, groups, is_enabled
from trainyard.backends.ec2.preflight_questions import ask
from trainyard.errors import PrerequisiteError, Problem
from trainyard.images import resolve
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Step, nothing
from trainyard.wording import counted, did_you_mean, named

GIB = 2**30
# So many times what is pulled of an image must fit beside what the AMI holds: sent, unpacked, and once more.
IMAGES = 3
# Commands of the file's own, by which instances may get a driver.
PREPARES = {"initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"}
DRIVER = re.compile(r"nvidia|gpu|cuda|deep learning|dlami", re.IGNORECASE)
# What their makers call AMIs that hold nothing but an operating system.
PLAIN = re.compile(r"ubuntu/images/|al20\d\d-ami|amzn2?-ami|debian-\d|RHEL-|suse-|Rocky-", re.IGNORECASE)
Rule = Callable[[ClusterSpec, Facts], Iterator[Found]]


def steps(spec: ClusterSpec, tools: Tools, location: Location) -> list[Step]:
    """Return a step for each thing that could not be checked. Raises PrerequisiteError with all that is wrong."""
    image = partial(resolve.pulled_bytes, spec, location.environ, directory=tools.directory) if spec.image else int
    facts = ask(spec, location, image=image)
    refuse(spec, facts)
    return [Step(f"Not checked: {remark}", done=lambda: YES, do=nothing) for remark in remarks(spec, facts)]


def refuse(spec: ClusterSpec, facts: Facts) -> None:
    """Raise PrerequisiteError with everything that is wrong; what AWS refuses to answer, alone, in its own words."""
    found = [Problem(*each) for each in problems(spec, facts)]
    if not found and len(facts.errors) == 1:
        raise facts.errors[0]
    found += [Problem("AWS", f"{error.what}: {error.hint}") for error in facts.errors]
    if found:
        raise PrerequisiteError(
            f"cluster {spec.name} cannot be made in {facts.region} as things are",
            problems=tuple(found),
            hint="Nothing was made. Mend them, and repeat the same command.",
        )


def problems(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    """Yield what is wrong, causes before what depends on them; what is not known is no problem."""
    for rule in RULES:
        yield from rule(spec, facts)


def remarks(spec: ClusterSpec, facts: Facts) -> list[str]:
    """Return what could not be checked."""
    silent = {group.ami for group in groups(spec) if _has_driver(group, spec, facts) is None}
    return [*facts.unknown, *(f"whether AMI {ami} has NVIDIA's driver, which its name does not say" for ami in silent)]


def _programs(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    for program, package in PROGRAMS.items():
        if program not in facts.programs:
            yield "this machine", f"has no {program}, which `ray up` needs: sudo apt-get install {package}"


def _region(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    subject = f"region {facts.region}"
    if facts.regions and facts.region not in facts.regions:
        yield subject, f"is no region of AWS{did_you_mean(facts.region, facts.regions)}"
    elif facts.regions and not is_enabled(facts.regions[facts.region]):
        remedy = f"aws account enable-region --region-name {facts.region}"
        yield subject, f"is not enabled for this account: {remedy}"


def _elsewhere(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    for region, count in facts.elsewhere.items():
        remove = f"invoke cluster.down --set ec2.region={region}"
        message = (
            f"exists in {region} ({counted(count, 'instance')}): give this one another name, or remove that: {remove}"
        )
        yield f"cluster {spec.name}", message


def _types(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    zones = network.zones(spec, facts)
    for group in groups(spec) if facts.types is not None else ():
        subject, name = f"group {group.name}", group.instance_type
        if (described := (facts.types or {}).get(name)) is None:
            yield subject, f"{name} is no instance type of {facts.region}"
            continue
        offered = {offer["Location"] for offer in facts.offers if offer["InstanceType"] == name}
        if facts.offers and zones and not zones & offered:
            yield subject, f"{name} is not offered in {named(sorted(zones))}, only in {named(sorted(offered), most=9)}"
        if group.gpus > (gpus := _gpus(described)):
            yield subject, f"{name} has {counted(gpus, 'NVIDIA GPU')}, and `gpus` is {group.gpus}"
        if group.cpus > (cpus := described["VCpuInfo"]["DefaultVCpus"]):
            yield subject, f"{name} has {counted(cpus, 'vCPU')}, and `cpus` is {group.cpus}"
        if group.spot and "spot" not in described["SupportedUsageClasses"]:
            yield subject, f"{name} is not to be had as spot instances: spot: false"


def _quotas(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    types = facts.types or {}
    for code, quota in facts.quotas.items():
        ours = [group for group in groups(spec) if group.quota == code and group.instance_type in types]
        vcpus = {group.name: group.most * types[group.instance_type]["VCpuInfo"]["DefaultVCpus"] for group in ours}
        used, most, needed = facts.used.get(code, 0), int(quota["Value"]), sum(vcpus.values())
        if needed and used + needed > most:
            parts = named([f"{name} {count}" for name, count in vcpus.items()], most=9)
            yield (
                f'quota "{quota["QuotaName"]}"',
                f"is {most} vCPUs in {facts.region}; other instances have {used}, and the cluster at its largest has "
                f"{needed} ({parts}): aws service-quotas request-service-quota-increase --service-code ec2 "
                f"--quota-code {code} --desired-value {used + needed} --region {facts.region}",
            )


def _amis(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    for name in dict.fromkeys(group.ami for group in groups(spec) if facts.amis is not None):
        image = (facts.amis or {}).get(name)
        if image is None:
            yield f"AMI {name}", f"does not exist in {facts.region}, or not for this account"
        elif image["State"] != "available":
            yield f"AMI {name}", f"is {image['State']}, and not available"
        elif image.get("RootDeviceType") != "ebs":
            yield f"AMI {name}", "has no root volume whose size could be chosen"
        else:
            for group in groups(spec):
                yield from _fits(group, image, spec, facts) if group.ami == name else ()


def _fits(group: Group, image: Object, spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    """Yield what is wrong with an AMI on the instances of a group: architecture, driver, the size of its disk."""
    subject, described = f"group {group.name}", (facts.types or {}).get(group.instance_type)
    runs = described["ProcessorInfo"]["SupportedArchitectures"] if described else [image["Architecture"]]
    if image["Architecture"] not in runs:
        yield subject, f"{group.instance_type} is {named(runs)}, and AMI {group.ami} is {image['Architecture']}"
    elif _has_driver(group, spec, facts) is False:
        remedy = "leave `ami` out, name one that has, or install it in ec2.ray.initialization_commands"
        yield subject, f"AMI {group.ami} ({image['Name']}) has no NVIDIA driver: {remedy}"
    own = _root_volume(image)
    least = own + IMAGES * facts.image
    if group.disk < least:
        image_too = f", and {IMAGES} times the image's {_gib(facts.image)} must fit beside it" if facts.image else ""
        message = f"a disk of {_gib(group.disk)} is too small: the AMI takes {_gib(own)}{image_too}"
        yield subject, f"{message}: disk: {-(-least // GIB)}GiB"


def _has_driver(group: Group, spec: ClusterSpec, facts: Facts) -> bool | None:
    """Say whether an AMI, or what is done to it, brings the driver of a group's GPUs; None where that is not known."""
    image, described = (facts.amis or {}).get(group.ami), (facts.types or {}).get(group.instance_type)
    if PREPARES & {*spec.ec2.ray} or image is None or not (group.gpus or (described and _gpus(described))):
        return True
    if DRIVER.search(f"{image.get('Name')} {image.get('Description')}"):
        return True
    return False if PLAIN.match(image.get("Name", "")) else None


def _key(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    if not spec.ec2.key_name:
        return
    subject, pair = f"key pair {spec.ec2.key_name}", (facts.key_pairs or {}).get(spec.ec2.key_name)
    file = spec.ec2.key_file or f"~/.ssh/{spec.ec2.key_name}.pem"
    if facts.key_pairs is not None and not pair:
        yield subject, f"does not exist in {facts.region}: leave `key_name` out, and one is made"
    if facts.public_key == "":
        yield subject, f"its private key is not on this machine, in {file}: write where it is, `key_file`"
    elif pair and facts.public_key and pair.get("PublicKey", "").split()[:2] != facts.public_key.split()[:2]:
        yield subject, f"is another key than {file}: instances would not let us in"


def _profile(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    subject = f"instance profile {spec.ec2.instance_profile}"
    if facts.profile == {}:
        yield subject, "does not exist: leave `instance_profile` out, and one is made"
    elif facts.profile and not facts.profile["Roles"]:
        yield subject, "has no role: aws iam add-role-to-instance-profile"
    if facts.denied_to_nodes:
        yield subject, f"its role may not {named(facts.denied_to_nodes, most=9)}, and no worker would come: allow it"


def _rights(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    launch = [action for action in facts.denied if not action.startswith("iam:")]
    if launch:
        yield "this user", f"may not {named(launch, most=9)}: whoever administers the account can allow it"
    if role := [action for action in facts.denied if action not in launch]:
        other = "" if spec.ec2.instance_profile else ", or name an instance profile that exists, `ec2.instance_profile`"
        yield "this user", f"may not {named(role, most=9)}, by which instances get a role: have it allowed{other}"


def _spot_role(spec: ClusterSpec, facts: Facts) -> Iterator[Found]:
    if not facts.has_spot_role:
        remedy = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
        yield "AWS account", f"has no role for spot instances yet: {remedy}"


def _gpus(described: Object) -> int:
    gpus = described.get("GpuInfo", {}).get("Gpus", ())
    return sum(gpu["Count"] for gpu in gpus if gpu["Manufacturer"].lower() == "nvidia")


def _root_volume(image: Object) -> int:
    """Return the bytes of an AMI's root volume, 0 if that is not described."""
    volumes = {each.get("DeviceName"): each.get("Ebs", {}) for each in image.get("BlockDeviceMappings", ())}
    return GIB * int(volumes.get(image.get("RootDeviceName"), {}).get("VolumeSize", 0))


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}".removesuffix(".0") + " GiB"


RULES: Sequence[Rule] = (
    _programs,
    _region,
    _elsewhere,
    network.zone_problems,
    network.subnet_problems,
    network.security_group_problems,
    _types,
    _quotas,
    _amis,
    _key,
    _rights,
    _profile,
    _spot_role,
)
