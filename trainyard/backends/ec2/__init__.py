"""Head and workers as instances of EC2, made by `ray up` and by Ray's autoscaler on the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainyard.backends.contract import Backend, Tools, Traits, Verified
from trainyard.backends.ec2 import account, down, listing, ray_up
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2 import status as statuses
from trainyard.backends.shared.record import forget_step
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step


def up_steps(spec: ClusterSpec, tools: Tools) -> Sequence[Step | Stage]:
    """Return the steps to a cluster whose nodes all answer: the account, `ray up`, the proof."""
    locations.refuse_elsewhere(spec, tools)
    location = locations.find(spec, tools)
    return [
        Stage("account", "Look at the AWS account", lambda: account.steps(spec, tools, location)),
        Stage(
            "cluster",
            "Look at the cluster",
            lambda: ray_up.steps(spec, tools, location, account.inputs(spec, tools, location)),
        ),
    ]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> Sequence[Step | Stage]:
    """Return the steps that remove what carries the cluster's tag.

    With `--adopt` what plain `ray up` made gets that tag first.
    """
    locations.refuse_elsewhere(spec, tools)
    location = locations.find(spec, tools)

    steps: list[Step | Stage] = []
    if tools.adopt:
        title = "Look for what `ray up` made"
        steps.append(Stage("made-by-ray-up", title, lambda: account.adopt(location)))
    steps.append(Stage("account", "Look at the AWS account", lambda: down.steps(location, tools)))
    steps.append(forget_step(tools.state))
    return steps


def verify(spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]) -> Verified:
    raise RequestError(
        "instances pull the image as they start: there is nothing to verify before",
        hint="trainyard cluster.up",
    )


BACKEND = Backend(
    traits=Traits(
        names_change=True,
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
