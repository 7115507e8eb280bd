"""Remove everything with the cluster's tag, and poll until nothing is left."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from trainyard.backends.contract import Site
from trainyard.backends.ec2 import disks, naming, objects, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import removal
from trainyard.errors import LeftoverError, Problem, TrainyardError
from trainyard.seams.aws import AwsError
from trainyard.steps import Answer, Step, nothing

# An instance shuts down and releases its network interface in one or two minutes.
GONE_SECONDS = 600.0
# The delay before instances are listed a second time, and before a removal is retried. EC2 is
# eventually consistent: its first answer may lack a new instance.
AGAIN_SECONDS = 1.0
# AWS's error codes for a resource that another one still uses.
HELD = (
    "DependencyViolation",
    "VolumeInUse",
    "IncorrectState",
    "DeleteConflict",
    "InvalidNetworkInterface.InUse",
)


class Kind(NamedTuple):
    """A kind of resource; `command` plus an id removes one resource by hand."""

    noun: str
    listed: Callable[[], list[str]]
    remove: Callable[[list[str]], object]
    command: str
    ends_nodes: bool = False


# The other kinds that carry the tag. Each key is EC2's name of a kind; each value is the key of
# the kind's ids, and a filter.
TAGGED: Mapping[str, tuple[str, Mapping[str, Sequence[str]]]] = {
    "volume": ("VolumeId", {}),
    # An interface in use belongs to an instance, and ends with it.
    "network_interface": ("NetworkInterfaceId", {"status": ["available"]}),
    "address": ("AllocationId", {}),
    "launch_template": ("LaunchTemplateId", {}),
    "security_group": ("GroupId", {}),
    "key_pair": ("KeyName", {}),
}


def steps(location: Location, site: Site) -> list[Step]:
    """Ask AWS what exists; return steps that remove it until nothing is left.

    The head ends first, because it launches workers. Raises RequestError for a
    cluster of another account, and for a cluster of another owner unless `--set
    name=` selects it.
    """
    locations.refuse_other_account(location)
    tags = {naming.CLUSTER: location.name}
    if not site.overriding("name"):
        objects.refuse_foreign(location, adopt=site.wishes.adopt)
        tags[naming.OWNER] = location.owner

    kinds = [_instances(location, "head"), _instances(location, "worker")]
    for name in TAGGED:
        if not (site.wishes.keep_disks and name == "volume"):
            kinds.append(_tagged(location, tags, name))
    if not location.section.instance_profile:
        kinds.append(_role(location))

    removals = [_removal(kind) for kind in kinds]
    if site.wishes.keep_disks:
        keep, release = disks.steps(location)
        removals = [keep, *removals[:2], release, *removals[2:]]

    steps = [replace(step, do=partial(_naming_leftovers, step.do, kinds)) for step in removals]
    return [*steps, *_stays(location, site)]


def _stays(location: Location, site: Site) -> Iterator[Step]:
    """Yield steps that name what stays: objects of `ray up`, and kept disks."""
    if any(each.tags.get(naming.HEAD_FROM) == naming.RAY_UP for each in _existing(location)):
        text = (
            "these objects of `ray up` stay, because other clusters may use them: key pair, "
            "security group, role"
        )
        yield _stay("made-by-ray-up", text)

    kept = [] if site.wishes.keep_disks else disks.kept(location)
    if kept:
        yield _stay("disks", disks.remark(location.aws, kept, location.aws.region))


def _stay(noun: str, text: str) -> Step:
    done = partial(Answer, True, text)
    return Step(f"stays:{noun}", "See what stays", done, nothing, kind="stays")


def _naming_leftovers(do: Callable[[], None], kinds: Sequence[Kind]) -> None:
    """Call `do`; raise a failure as LeftoverError with commands for removal."""
    try:
        do()
    except TrainyardError as error:
        left = []
        for kind in kinds:
            for name in kind.listed():
                left.append(Problem(f"{kind.noun} {name}", f"{kind.command} {name}"))

        hint = (
            "Repeat the same command: it continues from here. Or run the commands above, in this "
            "order."
        )
        raise LeftoverError(
            error.what, where=error.where, hint=hint, problems=tuple(left)
        ) from error


def _existing(location: Location) -> list[Instance]:
    tagged = snapshot.instances(location.aws, {naming.CLUSTER: location.name})
    return [instance for instance in tagged if instance.state != "terminated"]


def _instances(location: Location, noun: str) -> Kind:
    is_head = noun == "head"

    def listed() -> list[str]:
        return [each.id for each in _existing(location) if each.is_head == is_head]

    def listed_twice() -> list[str]:
        ids = listed()
        if ids:
            return ids
        time.sleep(AGAIN_SECONDS)
        return listed()

    def terminate(_: list[str]) -> None:
        # All instances are terminated at once, so that workers need not wait for the head's end.
        # The workers' step terminates workers that the head launches meanwhile.
        ids = [instance.id for instance in _existing(location)]
        location.aws.call("ec2", "terminate_instances", InstanceIds=ids)

    command = f"aws ec2 terminate-instances --region {location.aws.region} --instance-ids"
    return Kind(noun, listed_twice, terminate, command, ends_nodes=True)


def _tagged(location: Location, tags: Mapping[str, str], kind: str) -> Kind:
    key, only = TAGGED[kind]
    filters = dict(only)
    for name, value in tags.items():
        filters[f"tag:{name}"] = [value]

    verb = "delete"
    plural = f"{kind}s"
    if kind == "address":
        verb = "release"
        plural = "addresses"

    def listed() -> list[str]:
        return [described[key] for described in location.aws.described(plural, filters)]

    def remove(names: list[str]) -> None:
        for name in names:
            # `find` ignores a missing resource: another `down`, or the instance's end, may have
            # removed it.
            _once_free(partial(location.aws.find, "ec2", f"{verb}_{kind}", **{key: name}))

    option = re.sub("(?<=.)(?=[A-Z])", "-", key).lower()
    command = f"aws ec2 {verb}-{kind.replace('_', '-')} --region {location.aws.region} --{option}"
    return Kind(kind.replace("_", " "), listed, remove, command)


def _role(location: Location) -> Kind:
    aws = location.aws
    name = naming.role(location.name, location.aws.region)

    def listed() -> list[str]:
        for described in (objects.role(aws, name), objects.profile(aws, name)):
            if naming.read(described.get("Tags")).get(naming.CLUSTER) == location.name:
                return [name]
        return []

    def remove(_: list[str]) -> None:
        aws.find(
            "iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=name
        )
        _once_free(partial(aws.find, "iam", "delete_instance_profile", InstanceProfileName=name))
        aws.find("iam", "delete_role_policy", RoleName=name, PolicyName=name)
        _once_free(partial(aws.find, "iam", "delete_role", RoleName=name))

    command = "its policy and its instance profile first, then aws iam delete-role --role-name"
    return Kind("role", listed, remove, command)


def _once_free(remove: Callable[[], object]) -> None:
    """Retry `remove` while the resource is in use.

    Raises the AwsError after GONE_SECONDS, or at once if it has another cause.
    """
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        try:
            remove()
            return
        except AwsError as error:
            if error.code not in HELD or time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_SECONDS)


def _removal(kind: Kind) -> Step:
    return removal.step(
        kind.noun,
        kind.listed,
        kind.remove,
        deadline=GONE_SECONDS,
        every=1.0,
        disruptive=kind.ends_nodes,
    )
