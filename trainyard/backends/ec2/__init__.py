"""Head and workers as instances of EC2, made by `ray up` and by Ray's autoscaler on the head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainyard.backends import contract
from trainyard.backends.contract import ClusterStatus, LogLine, Tools, Traits, Verified
from trainyard.backends.ec2 import account, down, listing, objects, ray_up
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2 import status as statuses
from trainyard.backends.record import forget_step
from trainyard.endpoint import Endpoint
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step

TRAITS = Traits(names_change=True, pushed_image="cluster.up", has_regions=True)
documents = contract.nothing_to_show
diagnose = contract.nothing_to_diagnose
discover = listing.discover


def up_steps(spec: ClusterSpec, tools: Tools) -> Sequence[Step | Stage]:
    """Return the steps: look at the account, make what instances need, `ray up`, and prove that all nodes answer."""
    locations.refuse_elsewhere(spec, tools)
    location = locations.find(spec, tools)
    after = None if spec.ec2.security_group else objects.MAKE_GROUP
    return [
        Stage("Look at the AWS account", lambda: account.steps(spec, tools, location)),
        Stage(
            "Look at the cluster",
            lambda: ray_up.steps(spec, tools, location, account.site(spec, tools, location)),
            after,
        ),
    ]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> Sequence[Step | Stage]:
    locations.refuse_elsewhere(spec, tools)
    location = locations.find(spec, tools)
    return [Stage("Look at the AWS account", lambda: down.steps(location, tools)), forget_step(tools.state)]


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    return statuses.status(spec, locations.find(spec, tools), tools.backend)


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    return statuses.connect(spec, locations.find(spec, tools))


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    return statuses.log_lines(spec, locations.find(spec, tools), follow=follow, node=node)


def shell(spec: ClusterSpec, tools: Tools, *, node: str, command: str, terminal: bool) -> list[str]:
    return statuses.shell(spec, locations.find(spec, tools), node=node, command=command, terminal=terminal)


def verify(spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]) -> Verified:
    raise RequestError(
        "instances pull the image as they start: there is nothing to verify before", hint="invoke cluster.up"
    )
