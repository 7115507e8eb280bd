"""The account before there is anything of the cluster: what it has, what is asked for, who may come
in.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import Any

from trainyard.backends.contract import Tools
from trainyard.backends.ec2 import (
    desired,
    naming,
    objects,
    preflight,
    preflight_questions,
    snapshot,
)
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.desired import Site
from trainyard.backends.ec2.location import Location
from trainyard.errors import RequestError
from trainyard.images import resolve
from trainyard.seams import ray_autoscaler
from trainyard.seams.addresses import outgoing
from trainyard.seams.aws import caller_address
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no
from trainyard.wording import counted, named

# In place of the security group, in what a plan shows before there is one.
UNMADE = "sg-00000000"


def steps(spec: ClusterSpec, tools: Tools, location: Location) -> list[Step | Stage]:
    """Return the steps that make what instances are launched with; asks AWS whether all that is
    named exists.
    """
    locations.refuse_other_account(location)
    checked = preflight.steps(spec, tools, location)
    objects.refuse_foreign(location, adopt=tools.adopt)
    taken = adopt(location) if tools.adopt else []
    if taken and not tools.recreate:
        hint = "If that is meant: trainyard cluster.up --adopt --recreate"
        raise RequestError(
            f"what `ray up` made by the name {location.name} is replaced, with all that runs",
            hint=hint,
        )

    image = spec.image_of(naming.HEAD) or ""
    images = {}
    for group in spec.groups():
        if (own := spec.image_of(group) or "") != image:
            images[group] = own

    refuse_unknown_to_ray(
        desired.document(spec, Site(location, UNMADE, {}, image=image, images=images))
    )
    made = objects.steps(location, sources(location))

    return [locations.record_step(location, tools), *checked, *taken, *made]


def adopt(location: Location) -> list[Step]:
    """Return the step that gives our tags to what plain `ray up` made by the name of a cluster of
    ours; asks AWS.
    """

    def foreign() -> list[str]:
        found = snapshot.of_cluster(location)
        return [each.id for each in found if each.exists and naming.CLUSTER not in each.tags]

    tags = {
        naming.CLUSTER: location.name,
        naming.OWNER: location.owner,
        naming.HEAD_FROM: naming.RAY_UP,
    }

    def done() -> Answer:
        left = foreign()
        return no(f"not ours: {named(left)}") if left else YES

    def do() -> None:
        names = foreign()
        disks = location.aws.described("volumes", {"attachment.instance-id": names})
        resources = [*names, *(disk["VolumeId"] for disk in disks)]
        location.aws.call("ec2", "create_tags", Resources=resources, Tags=naming.pairs(tags))

    present = foreign()
    title = (
        f"Take over {counted(len(present), 'instance')} that Trainyard did not make: "
        f"{named(present)}"
    )

    # Disruptive, although it ends no node: where runs go on, nothing at all is changed.
    if present:
        return [Step("adopt", title, done, do, disruptive=True)]

    return []


def site(spec: ClusterSpec, tools: Tools, location: Location) -> Site:
    """Return what the instances are launched with, as the account has it by now, and as those that
    stay have it.
    """
    section = location.section
    aws = location.aws
    if tools.recreate:
        found = []
    else:
        found = [each for each in snapshot.of_cluster(location) if each.runs]

    tags = next((each.tags for each in found if each.is_head), {})
    image = ""
    images = {}

    if spec.image_of(naming.HEAD):
        pinned = partial(resolve.pinned, spec, location.environ, directory=tools.directory)
        image = pinned(running=tags.get(naming.IMAGE)).reference
        running = {each.group: each.tags.get(naming.IMAGE, "") for each in found}
        others = resolve.of_groups(
            spec, location.environ, directory=tools.directory, running=running
        )
        images = {group: each.reference for group, each in others.items()}

    subnets = tags.get(naming.SUBNETS, "").split()
    if not (subnets or section.subnet):
        usable = preflight_questions.usable(spec, preflight_questions.subnets(spec, aws))
        subnets = sorted(subnet["SubnetId"] for subnet in usable)

    launched = {each.tags.get(naming.AMI, ""): each.ami for each in reversed(found)}
    amis = preflight_questions.amis(spec, aws, launched)
    return Site(location, objects.security_group(location) or UNMADE, amis, subnets, image, images)


def sources(location: Location) -> list[str]:
    """Return who may use SSH: whom the file names, else this machine, by the address that the
    instances see.
    """
    section = location.section
    if section.security_group or section.ssh_from:
        return list(section.ssh_from)
    if not section.use_internal_ips:
        return [f"{caller_address()}/32"]
    network = ipaddress.ip_network(objects.vpc(location.aws, section)["CidrBlock"])
    return [f"{outgoing(str(network[1]))}/32"]


def refuse_unknown_to_ray(document: dict[str, Any]) -> None:
    """Raise RequestError with what Ray's own schema does not accept: it can only come from
    `ec2.ray`.
    """
    problems = ray_autoscaler.refused(document)
    if problems:
        raise RequestError(
            "Ray does not accept what `ec2: {ray: ...}` adds to its cluster file",
            problems=problems,
            hint="The keys: Ray's documentation, Cluster YAML Configuration Options.",
        )
