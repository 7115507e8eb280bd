"""Before a launch: steps that make AWS objects, and the launch's inputs."""

from __future__ import annotations

import ipaddress
from typing import Any

from trainyard.backends.contract import Site
from trainyard.backends.ec2 import desired, naming, objects, preflight, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2 import preflight_questions as questions
from trainyard.backends.ec2.desired import Inputs
from trainyard.backends.ec2.location import Location
from trainyard.errors import RequestError
from trainyard.images import resolve
from trainyard.seams import ray_autoscaler
from trainyard.seams.addresses import outgoing
from trainyard.seams.aws import caller_address
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no
from trainyard.wording import counted, named

# The security group in a plan, before the group is made.
UNMADE = "sg-00000000"


def steps(spec: ClusterSpec, site: Site, location: Location) -> list[Step | Stage]:
    """Check the file against AWS; return steps that make what instances need.

    The first step records the cluster's location. With --adopt, a step takes
    over instances of plain `ray up`. Raises PrerequisiteError or RequestError
    if the cluster cannot be made.
    """
    locations.refuse_other_account(location)
    unchecked = preflight.steps(spec, site, location)
    objects.refuse_foreign(location, adopt=site.wishes.adopt)

    adopted = adopt(location) if site.wishes.adopt else []
    if adopted and not site.wishes.recreate:
        hint = "If that is meant: trainyard cluster.up --adopt --recreate"
        raise RequestError(
            f"the cluster {location.name} of `ray up` would be replaced, which ends all that runs",
            hint=hint,
        )

    refuse_unknown_to_ray(desired.document(spec, _unresolved(spec, location)))
    made = objects.steps(location, sources(location))
    return [locations.record_step(location, site), *unchecked, *adopted, *made]


def _unresolved(spec: ClusterSpec, location: Location) -> Inputs:
    """Return inputs from the file alone, which are enough for Ray's schema."""
    image = spec.image_of(naming.HEAD) or ""
    images = {}
    for group in spec.groups():
        group_image = spec.image_of(group) or ""
        if group_image != image:
            images[group] = group_image
    return Inputs(location, UNMADE, {}, image=image, images=images)


def adopt(location: Location) -> list[Step]:
    """Return the step that tags instances of plain `ray up`; [] without any."""

    def untagged() -> list[str]:
        ids = []
        for instance in snapshot.of_cluster(location):
            if instance.exists and naming.CLUSTER not in instance.tags:
                ids.append(instance.id)
        return ids

    tags = {
        naming.CLUSTER: location.name,
        naming.OWNER: location.owner,
        naming.HEAD_FROM: naming.RAY_UP,
    }

    def done() -> Answer:
        left = untagged()
        if left:
            return no(f"not taken over yet: {named(left)}")
        return YES

    def do() -> None:
        instances = untagged()
        disks = location.aws.described("volumes", {"attachment.instance-id": instances})
        volumes = [disk["VolumeId"] for disk in disks]
        location.aws.call(
            "ec2", "create_tags", Resources=instances + volumes, Tags=naming.pairs(tags)
        )

    present = untagged()
    if not present:
        return []

    count = counted(len(present), "instance")
    title = f"Take over {count} that Trainyard did not make: {named(present)}"
    # The step ends no node. It is disruptive so that nothing changes while runs are in flight.
    return [Step("adopt", title, done, do, disruptive=True)]


def inputs(spec: ClusterSpec, site: Site, location: Location) -> Inputs:
    """Ask AWS and the registry for the inputs of a launch.

    A running cluster keeps its AMIs and subnets, and its image if the registry
    does not answer.
    """
    running = []
    if not site.wishes.recreate:
        running = [instance for instance in snapshot.of_cluster(location) if instance.runs]
    head_tags = next((instance.tags for instance in running if instance.is_head), {})

    image = ""
    images: dict[str, str] = {}
    if spec.image_of(naming.HEAD):
        head_image = head_tags.get(naming.IMAGE)
        by_group = {each.group: each.tags.get(naming.IMAGE, "") for each in running}
        directory = site.directory
        pinned = resolve.pinned(spec, location.environ, directory=directory, running=head_image)
        others = resolve.of_groups(spec, location.environ, directory=directory, running=by_group)
        image = pinned.reference
        images = {group: other.reference for group, other in others.items()}

    subnets = head_tags.get(naming.SUBNETS, "").split()
    if not (subnets or location.section.subnet):
        usable = questions.usable(spec, questions.subnets(spec, location.aws))
        subnets = sorted(subnet["SubnetId"] for subnet in usable)

    # The head is first in `running`. Reversed, its AMI replaces another AMI of the same name.
    launched = {each.tags.get(naming.AMI, ""): each.ami for each in reversed(running)}
    amis = questions.amis(spec, location.aws, launched)
    group = objects.security_group(location) or UNMADE
    return Inputs(location, group, amis, subnets, image, images)


def sources(location: Location) -> list[str]:
    """Return the CIDR blocks that may use SSH: the file's, else this machine.

    The address is the one that instances see, within the VPC or from outside.
    """
    section = location.section
    if section.security_group or section.ssh_from:
        return list(section.ssh_from)
    if not section.use_internal_ips:
        return [f"{caller_address()}/32"]
    network = ipaddress.ip_network(objects.vpc(location.aws, section)["CidrBlock"])
    return [f"{outgoing(str(network[1]))}/32"]


def refuse_unknown_to_ray(document: dict[str, Any]) -> None:
    """Raise RequestError if the additions of `ec2.ray` break Ray's schema."""
    problems = ray_autoscaler.refused(document)
    if problems:
        raise RequestError(
            "Ray rejects the cluster file with the additions of `ec2: {ray: ...}`",
            problems=problems,
            hint="Ray's documentation lists the keys: Cluster YAML Configuration Options.",
        )
