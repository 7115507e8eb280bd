"""On EC2, `ray up` makes the head, and Ray's autoscaler makes the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainyard.backends.contract import Backend, Site, Traits, Verified
from trainyard.backends.ec2 import account, down, listing, ray_up
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2 import status as statuses
from trainyard.backends.shared.record import forget_step
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step


def up_steps(spec: ClusterSpec, site: Site) -> Sequence[Step | Stage]:
    """Return the stages: first what instances need, then the instances."""
    locations.refuse_elsewhere(spec, site)
    location = locations.find(spec, site)
    return [
        Stage("account", "Look at the AWS account", lambda: account.steps(spec, site, location)),
        Stage(
            "cluster",
            "Look at the cluster",
            lambda: ray_up.steps(spec, site, location, account.inputs(spec, site, location)),
        ),
    ]


def down_steps(spec: ClusterSpec, site: Site, *, purge: bool) -> Sequence[Step | Stage]:
    """Return the steps that remove everything with the cluster's tag.

    With `--adopt`, instances of plain `ray up` get the tag first.
    """
    locations.refuse_elsewhere(spec, site)
    location = locations.find(spec, site)

    steps: list[Step | Stage] = []
    if site.wishes.adopt:
        title = "Look for what `ray up` made"
        steps.append(Stage("made-by-ray-up", title, lambda: account.adopt(location)))
    steps.append(Stage("account", "Look at the AWS account", lambda: down.steps(location, site)))
    steps.append(forget_step(site.state))
    return steps


def verify(spec: ClusterSpec, site: Site, *, report: Callable[[str], None]) -> Verified:
    raise RequestError(
        "instances pull the image as they start: it cannot be verified before",
        hint="trainyard cluster.up",
    )


BACKEND = Backend(
    traits=Traits(
        pushed_image="cluster.up",
        has_regions=True,
        nodes_pull=True,
        flags=("--adopt", "--keep-disks"),
    ),
    up_steps=up_steps,
    down_steps=down_steps,
    status=statuses.status,
    connect=statuses.connect,
    logs=statuses.log_lines,
    billed=statuses.billed,
    discover=listing.discover,
    shell=statuses.shell,
    verify=verify,
)
