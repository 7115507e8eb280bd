"""What plain `ray up` made by the name of a cluster of ours: never touched, unless that is asked for."""

from __future__ import annotations

from trainyard.backends.ec2 import naming, snapshot
from trainyard.backends.ec2.location import Location
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted, named

# Of no file of ours: `up` replaces the head, if that is asked for.
HEAD_FROM = "ray up"


def steps(location: Location) -> list[Step]:
    """Return the step that gives our tags to instances without them, and to their disks, if there are any; asks AWS."""

    def foreign() -> list[str]:
        found = snapshot.of_cluster(location)
        return [each.id for each in found if each.exists and naming.CLUSTER not in each.tags]

    tags = {naming.CLUSTER: location.name, naming.OWNER: location.owner, naming.HEAD_FROM: HEAD_FROM}

    def done() -> Answer:
        left = foreign()
        return no(f"not ours: {named(left)}") if left else YES

    def do() -> None:
        names = foreign()
        disks = location.aws.described("volumes", {"attachment.instance-id": names})
        resources = [*names, *(disk["VolumeId"] for disk in disks)]
        location.aws.call("ec2", "create_tags", Resources=resources, Tags=naming.pairs(tags))

    present = foreign()
    title = f"Take over {counted(len(present), 'instance')} that Trainyard did not make: {named(present)}"
    return [Step(title, done, do)] if present else []
