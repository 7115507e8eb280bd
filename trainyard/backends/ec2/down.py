"""Remove all that is ours in the account, and ask until nothing carries our tag."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from trainyard.backends.contract import Tools
from trainyard.backends.ec2 import disks, naming, objects, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import removal
from trainyard.errors import LeftoverError, Problem, TrainyardError
from trainyard.seams.aws import AwsError
from trainyard.steps import Answer, Step, nothing

# An instance shuts down, and the network lets go of it, within a minute or two.
GONE_SECONDS = 600.0
# A new instance is not in every answer at once (EC2's eventual consistency).
AGAIN_SECONDS = 1.0
# What AWS says of something that another thing still uses.
HELD = (
    "DependencyViolation",
    "VolumeInUse",
    "IncorrectState",
    "DeleteConflict",
    "InvalidNetworkInterface.InUse",
)


class Kind(NamedTuple):
    """What of a cluster may be in the account: how it is listed and removed, by ids, and the
    command for one.
    """

    noun: str
    listed: Callable[[], list[str]]
    remove: Callable[[list[str]], object]
    command: str
    ends_nodes: bool = False


# What else carries our tag: what describes it, what each is called by, and which are meant.
TAGGED: Mapping[str, tuple[str, Mapping[str, Sequence[str]]]] = {
    "volume": ("VolumeId", {}),
    # The others belong to instances, and end with them.
    "network_interface": ("NetworkInterfaceId", {"status": ["available"]}),
    "address": ("AllocationId", {}),
    "launch_template": ("LaunchTemplateId", {}),
    "security_group": ("GroupId", {}),
    "key_pair": ("KeyName", {}),
}


def steps(location: Location, tools: Tools) -> list[Step]:
    """Return the steps after which nothing is left. The head goes first, which would launch others;
    asks AWS.

    Raises RequestError for a cluster in another account, or of somebody else unless `--set` names
    it.
    """
    locations.refuse_other_account(location)
    tags = {naming.CLUSTER: location.name}
    if not tools.overriding("name"):
        objects.refuse_foreign(location, adopt=tools.adopt)
        tags[naming.OWNER] = location.owner

    objects_of = []
    for each in TAGGED:
        if not (tools.keep_disks and each == "volume"):
            objects_of.append(_tagged(location, tags, each))

    if location.section.instance_profile:
        roles = []
    else:
        roles = [_role(location)]

    kinds = [_instances(location, "head"), _instances(location, "worker"), *objects_of, *roles]
    found = [_removal(kind) for kind in kinds]
    if tools.keep_disks:
        keep, release = disks.steps(location)
        found = [keep, *found[:2], release, *found[2:]]

    removed = [replace(step, do=partial(_naming_what_is_left, step.do, kinds)) for step in found]
    return [*removed, *_stays(location, tools)]


def _stays(location: Location, tools: Tools) -> Iterator[Step]:
    """Yield a step for each thing that is left on purpose, besides the disks that are kept now."""
    if any(each.tags.get(naming.HEAD_FROM) == naming.RAY_UP for each in _existing(location)):
        text = (
            "key pair, security group and role that `ray up` made stay: they may be those of "
            "other clusters"
        )
        yield _stay("made-by-ray-up", text)
    if not tools.keep_disks and (kept := disks.kept(location)):
        yield _stay("disks", disks.remark(location.aws, kept, location.aws.region))


def _stay(what: str, text: str) -> Step:
    return Step(
        f"stays:{what}", "See what stays", partial(Answer, True, text), nothing, kind="stays"
    )


def _naming_what_is_left(do: Callable[[], None], kinds: Sequence[Kind]) -> None:
    """Remove; raise LeftoverError with all that is left, and the commands for it, if that fails."""
    try:
        do()
    except TrainyardError as error:
        left = []
        for kind in kinds:
            for name in kind.listed():
                left.append(Problem(f"{kind.noun} {name}", f"{kind.command} {name}"))

        hint = (
            "Repeat the same command: it continues from here. Or remove each by its command, "
            "in this order."
        )
        raise LeftoverError(
            error.what, where=error.where, hint=hint, problems=tuple(left)
        ) from error


def _existing(location: Location) -> list[Instance]:
    ours = snapshot.instances(location.aws, {naming.CLUSTER: location.name})
    return [each for each in ours if each.state != "terminated"]


def _instances(location: Location, noun: str) -> Kind:
    def listed() -> list[str]:
        return [each.id for each in _existing(location) if each.is_head == (noun == "head")]

    def listed_twice() -> list[str]:
        if ids := listed():
            return ids
        time.sleep(AGAIN_SECONDS)
        return listed()

    def terminate(_: list[str]) -> None:
        # Workers need not wait for the head's end; what it launches until then, the workers' own
        # step finds.
        location.aws.call(
            "ec2", "terminate_instances", InstanceIds=[each.id for each in _existing(location)]
        )

    command = f"aws ec2 terminate-instances --region {location.aws.region} --instance-ids"
    return Kind(noun, listed_twice, terminate, command, ends_nodes=True)


def _tagged(location: Location, tags: Mapping[str, str], kind: str) -> Kind:
    key, only = TAGGED[kind]
    chosen = {**only, **{f"tag:{name}": [value] for name, value in tags.items()}}
    if kind == "address":
        verb, plural = ("release", "addresses")
    else:
        verb, plural = ("delete", f"{kind}s")

    def listed() -> list[str]:
        return [each[key] for each in location.aws.described(plural, chosen)]

    def remove(names: list[str]) -> None:
        for each in names:
            # Somebody, or the end of its instance, may have been quicker.
            _once_free(partial(location.aws.find, "ec2", f"{verb}_{kind}", **{key: each}))

    option = re.sub("(?<=.)(?=[A-Z])", "-", key).lower()
    command = f"aws ec2 {verb}-{kind.replace('_', '-')} --region {location.aws.region} --{option}"
    return Kind(kind.replace("_", " "), listed, remove, command)


def _role(location: Location) -> Kind:
    aws = location.aws
    name = naming.role(location.name, location.aws.region)

    def listed() -> list[str]:
        found = (objects.role(aws, name), objects.profile(aws, name))
        if location.name in (naming.read(each.get("Tags")).get(naming.CLUSTER) for each in found):
            return [name]
        return []

    def remove(_: list[str]) -> None:
        aws.find(
            "iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=name
        )
        _once_free(partial(aws.find, "iam", "delete_instance_profile", InstanceProfileName=name))
        aws.find("iam", "delete_role_policy", RoleName=name, PolicyName=name)
        _once_free(partial(aws.find, "iam", "delete_role", RoleName=name))

    return Kind(
        "role",
        listed,
        remove,
        "its policy and its instance profile first, then aws iam delete-role --role-name",
    )


def _once_free(remove: Callable[[], object]) -> None:
    """Remove something as soon as what holds it has ended."""
    ends = time.monotonic() + GONE_SECONDS
    while True:
        try:
            remove()
            return
        except AwsError as error:
            if error.code not in HELD or time.monotonic() > ends:
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
