"""The nodes of a cluster: instances as AWS has them, together with what Ray says about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone

from trainyard.backends.contract import NodeState, NodeStatus
from trainyard.backends.ec2 import desired, diagnosis, naming, snapshot
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import ray_nodes
from trainyard.endpoint import ExpectedNode
from trainyard.errors import OutsideError, TrainyardError
from trainyard.results.formats import duration
from trainyard.seams import aws_prices
from trainyard.seams.aws import Aws
from trainyard.seams.forwarding import last_error
from trainyard.seams.ray_api import FileMissingError, RayApi
from trainyard.seams.ssh import forward
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.ec2 import Ec2Section
from trainyard.steps import YES, Answer, Step, no, nothing
from trainyard.wording import all_answer, clean

DASHBOARD_PORT = 8265
# Of the head, besides Ray's usual ones: what launches workers and sets them up.
AUTOSCALER_FILES = ("monitor.out", "monitor.log", "monitor.err")
TAIL_LINES = 1000
# What is printed of a launch that EC2 refused (ray/autoscaler, aws/node_provider.py,
# v2/instance_manager).
_LAUNCH = re.compile(r"Attempt failed|NodeLaunchException|Node Launch Exception|Failed to launch")
_LAUNCHED = re.compile(r"Launched \d+ nodes")
_OF_GROUP = re.compile(r"nodes of type ([\w-]+)")


def address(location: Location, head: Instance) -> str:
    """Return where the dashboard answers for us, as long as this process lives. Raises
    HostError.
    """
    return f"http://127.0.0.1:{forward.local_port(snapshot.reach(location, head), DASHBOARD_PORT)}"


def ray_client(location: Location, head: Instance, port: int) -> str:
    """Return where the head's Ray Client server answers for us, as long as this process lives.
    Raises HostError.
    """
    return f"ray://127.0.0.1:{forward.local_port(snapshot.reach(location, head), port)}"


def alive(location: Location, head: Instance | None) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    if head is None or head.state != "running":
        return frozenset(), "the head does not run" if head else ""
    port = None
    try:
        where = address(location, head)
        port = int(where.rpartition(":")[2])
        return ray_nodes.alive(where, location.token, started={}), ""
    except TrainyardError as error:
        return frozenset(), (last_error(port) if port else "") or error.what


def statuses(
    spec: ClusterSpec, found: Sequence[Instance], names: frozenset[str]
) -> tuple[NodeStatus, ...]:
    """Return every node that the file names or that has an instance; `names` are those that Ray
    calls alive.
    """
    existing = [instance for instance in found if instance.exists]
    groups = desired.groups(spec)
    made = []

    for group in dict.fromkeys([*groups, *(each.group for each in existing)]):
        own = groups.get(group)
        if own:
            least, most, cpus, gpus = (own.least, own.most, own.size.cpus, own.size.gpus)
        else:
            least, most, cpus, gpus = (0, 0, None, 0)

        members = [each for each in existing if each.group == group]
        for index, instance in enumerate(members):
            state, detail = _state(instance, is_alive=instance.name in names)
            state = "surplus" if index >= most else state
            facts = describe(instance, spec.ec2)
            host = " ".join([*facts.values(), age(instance)]).strip()
            made.append(
                NodeStatus(instance.name, group, host, state, cpus, gpus, detail, instance=facts)
            )

        for index in range(len(members), least):
            if group == naming.HEAD:
                name = naming.HEAD
            else:
                name = f"{group}-?{index + 1}"
            made.append(NodeStatus(name, group, "", "absent", cpus, gpus, "no instance"))

    return tuple(made)


def expected(spec: ClusterSpec, found: Sequence[Instance]) -> tuple[ExpectedNode, ...]:
    """Return what a run is promised: the instances, and those that Ray may add or take away."""
    promised = []
    for group, least, most, size, *_ in desired.groups(spec).values():
        members = [each.name for each in found if each.runs and each.group == group]
        names = members + [f"{group}-?{index + 1}" for index in range(len(members), most)]
        for index, name in enumerate(names):
            if len(members) <= least:
                optional = index >= least
            else:
                optional = most > least
            promised.append(
                ExpectedNode(
                    name, group, size.cpus, size.gpus, size.memory, optional, size.resources
                )
            )

    return tuple(promised)


def step(
    spec: ClusterSpec, location: Location, before: frozenset[str], *, seconds: float, after: str
) -> Step:
    """Return the step after which all nodes answer; it raises why one cannot.

    `before` are instances of earlier tries, which say nothing about this one.
    """

    def done() -> Answer:
        found = snapshot.of_cluster(location)
        head = snapshot.head(found)
        names, detail = alive(location, head)

        if head is None or not head.runs:
            last = [f"{each.id} is {each.state}: {each.reason}" for each in found if each.is_head][
                -1:
            ]
            hint = "Repeat the same command: it makes another."
            raise OutsideError("the head is gone", where="".join(last) or None, hint=hint)

        silent = list(_silent(spec, statuses(spec, found, names)))
        if not silent:
            return YES

        failed = [
            each for each in found if each.status == naming.UPDATE_FAILED and each.id not in before
        ]
        refuse_broken(location, head, failed, reached="head" in names)

        return no("; ".join([detail or f"waiting for {', '.join(silent)}", *_ended(found, before)]))

    title = all_answer(len(spec.nodes()))
    return Step("nodes-answer", title, done, nothing, deadline=seconds, every=1.0, after=after)


def refuse_broken(
    location: Location, head: Instance, failed: Sequence[Instance], *, reached: bool
) -> None:
    """Raise the cause if workers cannot be launched, or one cannot be set up, as the head's
    autoscaler says.

    It sets each up three times (ray/autoscaler/v2, threaded_ray_installer.py): the first may fail
    by chance.
    """
    lines = autoscaler_lines(location, head) if reached else {}
    log = lines.get("monitor.log", [])
    printed = lines.get("monitor.out", [])

    for worker in failed:
        tries = [line for line in log if f"Ray installation failed on instance {worker.id}" in line]
        if len(tries) > 1:
            words = {"name": worker.name, "user": location.section.user, "type_": worker.type}
            found = diagnosis.cause(printed, **words) or diagnosis.failed_command(
                printed, name=worker.name
            )
            raise found.to_error(where="what the autoscaler printed: trainyard cluster.logs head")

    launches = [
        line for line in (*_after_launch(log), *_after_launch(printed)) if _LAUNCH.search(line)
    ]
    if all("Attempt failed" in line for line in launches):
        return

    groups = dict.fromkeys(group for line in launches for group in _OF_GROUP.findall(line))
    types = dict.fromkeys(str(location.section.instances(group).instance_type) for group in groups)
    if found_launch := diagnosis.cause(
        launches, name="the head", type_=" or ".join(types) or "such instance"
    ):
        shown = diagnosis.with_lines(found_launch, launches)
        raise shown.to_error(where="the autoscaler on the head, which keeps trying")


def _after_launch(lines: Sequence[str]) -> Sequence[str]:
    """Return what was written since nodes were last launched: what was refused before that was
    overcome.
    """
    return lines[
        max((index + 1 for index, line in enumerate(lines) if _LAUNCHED.search(line)), default=0) :
    ]


def _ended(found: Sequence[Instance], before: frozenset[str]) -> list[str]:
    """Return why the newest of the instances ended that nobody asked to, if there is one."""
    ended = [
        each
        for each in found
        if not (each.exists or each.id in before or "UserInitiated" in each.reason)
    ]
    newest = sorted((each for each in ended if each.reason), key=lambda each: str(each.launched))[
        -1:
    ]
    return [f"{each.name} ended: {each.reason}" for each in newest]


def autoscaler_lines(location: Location, head: Instance) -> dict[str, list[str]]:
    """Return the last lines that the head's autoscaler wrote, by file; {} where the dashboard does
    not give them.
    """
    lines: dict[str, list[str]] = {}
    with suppress(OutsideError), RayApi(address(location, head), location.token) as ray:
        heads = [node.node_id for node in ray.nodes() if node.is_head and node.alive]
        for node, name in ((node, name) for node in heads for name in AUTOSCALER_FILES):
            with suppress(FileMissingError), ray.file(node, name, last_lines=TAIL_LINES) as chunks:
                lines[name] = clean(b"".join(chunks).decode(errors="replace")).splitlines()
    return lines


def _silent(spec: ClusterSpec, every: Sequence[NodeStatus]) -> Iterator[str]:
    """Yield the nodes that are waited for; of a group that has its fewest nodes, those that are too
    many.
    """
    for group in desired.groups(spec).values():
        members = [node for node in every if node.group == group.name]
        if sum(node.state == "up" for node in members) < group.least:
            waited = [node for node in members if node.state != "up"]
            for node in waited:
                yield f"{node.name} ({node.detail})" if node.detail else node.name
        for node in members:
            if node.state == "surplus":
                yield f"the end of {node.name}"


def _state(instance: Instance, *, is_alive: bool) -> tuple[NodeState, str]:
    if not instance.runs:
        return "broken", f"the instance is {instance.state}"
    if is_alive:
        return "up", ""
    if instance.status == naming.UPDATE_FAILED:
        return "broken", "its set-up failed"
    return "starting", "boots" if instance.state == "pending" else instance.status or "boots"


def describe(instance: Instance, section: Ec2Section) -> dict[str, str]:
    """Return what is known of what a status says of an instance."""
    price = "spot" if instance.is_spot else "on demand"
    address = snapshot.ip(section, instance)
    facts = {
        "id": instance.id,
        "type": instance.type,
        "zone": instance.zone,
        "price_class": price,
        "address": address,
    }
    return {name: value for name, value in facts.items() if value}


def age(instance: Instance) -> str:
    if instance.launched is None:
        return ""
    return duration((datetime.now(timezone.utc) - instance.launched).total_seconds())


def cost(aws: Aws, region: str, types: Sequence[str], *, at_most: bool) -> str:
    """Return what these instances cost, "" where AWS's price list does not say it."""
    price = aws_prices.hourly(aws, region, types)
    if price is None:
        return ""
    return f"{'at most ' * at_most}{price:.2f} USD an hour"
