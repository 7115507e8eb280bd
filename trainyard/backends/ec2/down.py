"""Remove all that is ours in the account, and ask until nothing carries our tag."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from trainyard.backends.contract import STAYS, Tools
from trainyard.backends.ec2 import adopt, disks, naming, objects, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.errors import LeftoverError, Problem, TrainyardError
from trainyard.seams.aws import AwsError
from trainyard.steps import YES, Answer, Step, no, nothing
from trainyard.wording import counted, named

# An instance shuts down, and the network lets go of it, within a minute or two.
GONE_SECONDS = 600.0
# A new instance is not in every answer at once (EC2's eventual consistency).
AGAIN_SECONDS = 1.0
# What AWS says of something that another thing still uses.
HELD = ("DependencyViolation", "VolumeInUse", "IncorrectState", "DeleteConflict", "InvalidNetworkInterface.InUse")


Kind = tuple[str, str, str, Mapping[str, Sequence[str]]]
# Kinds of EC2's objects that carry our tag: what describes them, what each is called by, what removes it, and which.
KINDS: Sequence[Kind] = (
    ("volumes", "VolumeId", "delete_volume", {}),
    # The others belong to instances, and end with them.
    ("network_interfaces", "NetworkInterfaceId", "delete_network_interface", {"status": ["available"]}),
    ("addresses", "AllocationId", "release_address", {}),
    ("launch_templates", "LaunchTemplateId", "delete_launch_template", {}),
    ("security_groups", "GroupId", "delete_security_group", {}),
    ("key_pairs", "KeyName", "delete_key_pair", {}),
)


def steps(location: Location, tools: Tools) -> list[Step]:
    """Return the steps after which nothing is left. The head goes first, which would launch others; asks AWS.

    Raises RequestError for a cluster in another account, or of somebody else unless `--set` names it.
    """
    locations.refuse_other_account(location)
    tags = {naming.CLUSTER: location.name}
    if "name" not in locations.overridden(tools):
        objects.refuse_foreign(location, adopt=tools.adopt)
        tags[naming.OWNER] = location.owner
    found = [_instances(location, "head", heads=True), _instances(location, "worker", heads=False)]
    kinds = KINDS
    if tools.keep_disks:
        keep, release = disks.steps(location)
        found, kinds = [keep, *found, release], [kind for kind in KINDS if kind[0] != "volumes"]
    found += [_tagged(location, tags, kind) for kind in kinds]
    found += [] if location.section.instance_profile else [_role(location)]
    removed = [replace(step, do=partial(_naming_what_is_left, step.do, location, tags, kinds)) for step in found]
    return [*removed, *(Step(STAYS, partial(Answer, True, text), nothing) for text in _stays(location, tools))]


def _stays(location: Location, tools: Tools) -> Iterator[str]:
    """Yield what is left on purpose, besides the disks that are kept now."""
    if any(each.tags.get(naming.HEAD_FROM) == adopt.HEAD_FROM for each in _existing(location)):
        yield "key pair, security group and role that `ray up` made stay: they may be those of other clusters"
    if not tools.keep_disks and (kept := disks.kept(location)):
        yield disks.remark(location.aws, kept, location.aws.region)


def _naming_what_is_left(
    do: Callable[[], None], location: Location, tags: Mapping[str, str], kinds: Sequence[Kind]
) -> None:
    """Remove; raise LeftoverError with all that is left, and the commands for it, if that fails."""
    try:
        do()
    except TrainyardError as error:
        problems = tuple(_left(location, tags, kinds))
        hint = "Repeat the same command: it continues from here. Or remove each by its command, in this order."
        raise LeftoverError(error.what, where=error.where, hint=hint, problems=problems) from error


def _left(location: Location, tags: Mapping[str, str], kinds: Sequence[Kind]) -> Iterator[Problem]:
    at = f"--region {location.aws.region}"
    for instance in _existing(location):
        yield Problem(f"instance {instance.id}", f"aws ec2 terminate-instances {at} --instance-ids {instance.id}")
    for kind in kinds:
        _, key, removal, _ = kind
        option = re.sub("(?<=.)(?=[A-Z])", "-", key).lower()
        for name in _described(location, tags, kind):
            yield Problem(f"{_noun(removal)} {name}", f"aws ec2 {removal.replace('_', '-')} {at} --{option} {name}")
    for name in _roles(location):
        yield Problem(
            f"role {name}", f"its policy and its instance profile first, then aws iam delete-role --role-name {name}"
        )


def _existing(location: Location) -> list[Instance]:
    ours = snapshot.instances(location.aws, {naming.CLUSTER: location.name})
    return [each for each in ours if each.state != "terminated"]


def _instances(location: Location, kind: str, *, heads: bool) -> Step:
    def listed() -> list[str]:
        return [each.id for each in _existing(location) if each.is_head is heads]

    def listed_twice() -> list[str]:
        if ids := listed():
            return ids
        time.sleep(AGAIN_SECONDS)
        return listed()

    def terminate(_: Sequence[str]) -> None:
        # Workers need not wait for the head's end; what it launches until then, the workers' own step finds.
        location.aws.call("ec2", "terminate_instances", InstanceIds=[each.id for each in _existing(location)])

    return _removal(kind, listed_twice, terminate, disruptive=True)


def _tagged(location: Location, tags: Mapping[str, str], kind: Kind) -> Step:
    _, key, removal, _ = kind

    def remove(names: Sequence[str]) -> None:
        for each in names:
            # Somebody, or the end of its instance, may have been quicker.
            _once_free(partial(location.aws.find, "ec2", removal, **{key: each}))

    return _removal(_noun(removal), lambda: _described(location, tags, kind), remove)


def _described(location: Location, tags: Mapping[str, str], kind: Kind) -> list[str]:
    described, key, _, only = kind
    chosen = {**only, **{f"tag:{name}": [value] for name, value in tags.items()}}
    return [each[key] for each in location.aws.described(described, chosen)]


def _noun(removal: str) -> str:
    return removal.partition("_")[2].replace("_", " ")


def _role(location: Location) -> Step:
    aws, name = location.aws, naming.role(location.name, location.aws.region)

    def remove(_: Sequence[str]) -> None:
        aws.find("iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=name)
        _once_free(partial(aws.find, "iam", "delete_instance_profile", InstanceProfileName=name))
        aws.find("iam", "delete_role_policy", RoleName=name, PolicyName=name)
        _once_free(partial(aws.find, "iam", "delete_role", RoleName=name))

    return _removal("role", lambda: _roles(location), remove)


def _roles(location: Location) -> list[str]:
    name = naming.role(location.name, location.aws.region)
    found = (objects.role(location.aws, name), objects.profile(location.aws, name))
    return [name] if location.name in (naming.read(each.get("Tags")).get(naming.CLUSTER) for each in found) else []


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


def _removal(
    kind: str, listed: Callable[[], list[str]], remove: Callable[[Sequence[str]], None], *, disruptive: bool = False
) -> Step:
    def none() -> Answer:
        left = listed()
        return no(f"still there: {named(left)}") if left else YES

    present = listed()
    title = f"Remove {counted(len(present), kind)}: {named(present)}" if present else f"Leave no {kind}"
    return Step(title, none, lambda: remove(listed()), deadline=GONE_SECONDS, every=1.0, disruptive=disruptive)
