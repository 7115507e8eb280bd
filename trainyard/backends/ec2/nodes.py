"""A cluster's nodes: the instances that AWS lists, and Ray's view of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone

from trainyard_runner.wire.plan import ExpectedNode

from trainyard.backends.contract import NodeState, NodeStatus
from trainyard.backends.ec2 import desired, diagnosis, naming, snapshot
from trainyard.backends.ec2.desired import Group
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import ray_nodes
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
# The autoscaler's log files on the head.
AUTOSCALER_FILES = ("monitor.out", "monitor.log", "monitor.err")
TAIL_LINES = 1000
# The autoscaler's texts for a rejected launch, a successful launch, and the group of a launch
# (ray/autoscaler, aws/node_provider.py, v2/instance_manager).
_LAUNCH = re.compile(r"Attempt failed|NodeLaunchException|Node Launch Exception|Failed to launch")
_LAUNCHED = re.compile(r"Launched \d+ nodes")
_OF_GROUP = re.compile(r"nodes of type ([\w-]+)")


def address(location: Location, head: Instance) -> str:
    """Return the URL of an SSH tunnel to the dashboard. Raises HostError."""
    return f"http://127.0.0.1:{forward.local_port(snapshot.reach(location, head), DASHBOARD_PORT)}"


def ray_client(location: Location, head: Instance, port: int) -> str:
    """Return the address of an SSH tunnel to Ray Client. Raises HostError."""
    return f"ray://127.0.0.1:{forward.local_port(snapshot.reach(location, head), port)}"


def alive(location: Location, head: Instance | None) -> tuple[frozenset[str], str]:
    """Return the names of living nodes, and why Ray was silent, if known."""
    if head is None or head.state != "running":
        return frozenset(), "the head does not run" if head else ""

    try:
        dashboard = address(location, head)
    except TrainyardError as error:
        return frozenset(), error.what

    try:
        return ray_nodes.alive(dashboard, location.token, started={}), ""
    except TrainyardError as error:
        port = int(dashboard.rpartition(":")[2])
        return frozenset(), last_error(port) or error.what


def statuses(
    spec: ClusterSpec, found: Sequence[Instance], names: frozenset[str]
) -> tuple[NodeStatus, ...]:
    """Return the status of every node in the file or with an instance.

    `names` are the nodes that Ray calls alive.
    """
    groups = desired.groups(spec)
    members: dict[str, list[Instance]] = {name: [] for name in groups}
    for instance in found:
        if instance.exists:
            members.setdefault(instance.group, []).append(instance)

    nodes: list[NodeStatus] = []
    for name, instances in members.items():
        nodes += _group_statuses(name, groups.get(name), instances, names, spec.ec2)
    return tuple(nodes)


def _group_statuses(
    name: str,
    group: Group | None,
    instances: Sequence[Instance],
    names: frozenset[str],
    section: Ec2Section,
) -> Iterator[NodeStatus]:
    """Yield the status of each instance of a group, then of each missing node.

    `group` is None if the file lacks the group: all its instances are then
    surplus.
    """
    least = group.least if group else 0
    most = group.most if group else 0
    cpus = group.size.cpus if group else None
    gpus = group.size.gpus if group else 0

    for index, instance in enumerate(instances):
        state, detail = _state(instance, is_alive=instance.name in names)
        if index >= most:
            state = "surplus"
        facts = describe(instance, section)
        host = " ".join([*facts.values(), age(instance)])
        yield NodeStatus(instance.name, name, host, state, cpus, gpus, detail, instance=facts)

    for index in range(len(instances), least):
        node = naming.HEAD if name == naming.HEAD else f"{name}-?{index + 1}"
        yield NodeStatus(node, name, "", "absent", cpus, gpus, "no instance")


def expected(spec: ClusterSpec, found: Sequence[Instance]) -> tuple[ExpectedNode, ...]:
    """Return nodes that runs expect; Ray may add or remove `optional` ones."""
    promised = []
    for group in desired.groups(spec).values():
        running = [each.name for each in found if each.runs and each.group == group.name]
        possible = [f"{group.name}-?{index + 1}" for index in range(len(running), group.most)]
        size = group.size
        for index, name in enumerate(running + possible):
            if len(running) <= group.least:
                optional = index >= group.least
            else:
                optional = group.most > group.least
            node = ExpectedNode(
                name, group.name, size.cpus, size.gpus, size.memory, optional, size.resources
            )
            promised.append(node)

    return tuple(promised)


def step(
    spec: ClusterSpec, location: Location, before: frozenset[str], *, seconds: float, after: str
) -> Step:
    """Return the step that waits until nodes answer, or raises why one cannot.

    `before` has the ids of instances that existed before this command: their
    failures do not count.
    """

    def done() -> Answer:
        found = snapshot.of_cluster(location)
        head = snapshot.head(found)
        names, detail = alive(location, head)

        if head is None or not head.runs:
            raise _head_is_gone(found)

        silent = list(_silent(spec, statuses(spec, found, names)))
        if not silent:
            return YES

        tried = [each for each in found if each.id not in before]
        failed = [each for each in tried if each.status == naming.UPDATE_FAILED]
        refuse_broken(location, head, failed, reached="head" in names)

        reasons = [detail or f"waiting for {', '.join(silent)}", _ended(tried)]
        return no("; ".join(filter(None, reasons)))

    title = all_answer(len(spec.nodes()))
    return Step("nodes-answer", title, done, nothing, deadline=seconds, every=1.0, after=after)


def _head_is_gone(found: Sequence[Instance]) -> OutsideError:
    where = None
    for instance in found:
        if instance.is_head:
            where = f"{instance.id} is {instance.state}: {instance.reason}"
    hint = "Repeat the same command: it makes another head."
    return OutsideError("the head is gone", where=where, hint=hint)


def refuse_broken(
    location: Location, head: Instance, failed: Sequence[Instance], *, reached: bool
) -> None:
    """Raise the cause if the head's autoscaler cannot launch or set up workers.

    `failed` are workers whose set-up failed. `reached`: the dashboard answers,
    so the autoscaler's logs can be read. The autoscaler tries each set-up three
    times (ray/autoscaler/v2, threaded_ray_installer.py). One failed attempt may
    be chance, and is tolerated.
    """
    lines = autoscaler_lines(location, head) if reached else {}
    log = lines.get("monitor.log", [])
    printed = lines.get("monitor.out", [])

    for worker in failed:
        failure = f"Ray installation failed on instance {worker.id}"
        attempts = [line for line in log if failure in line]
        if len(attempts) > 1:
            words = {"name": worker.name, "user": location.section.user, "type_": worker.type}
            cause = diagnosis.cause(printed, **words)
            cause = cause or diagnosis.failed_command(printed, name=worker.name)
            raise cause.to_error(where="what the autoscaler printed: trainyard cluster.logs head")

    _refuse_rejected_launches(location, [*_after_launch(log), *_after_launch(printed)])


def _refuse_rejected_launches(location: Location, lines: Sequence[str]) -> None:
    launches = [line for line in lines if _LAUNCH.search(line)]
    if all("Attempt failed" in line for line in launches):
        return

    types: list[str] = []
    for line in launches:
        for group in _OF_GROUP.findall(line):
            types.append(str(location.section.instances(group).instance_type))

    type_ = " or ".join(dict.fromkeys(types)) or "such instance"
    cause = diagnosis.cause(launches, name="the head", type_=type_)
    if cause:
        cause = diagnosis.with_lines(cause, launches)
        raise cause.to_error(where="the autoscaler on the head, which keeps trying")


def _after_launch(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines after the last launch; earlier rejections are stale."""
    start = 0
    for index, line in enumerate(lines):
        if _LAUNCHED.search(line):
            start = index + 1
    return lines[start:]


def _ended(tried: Sequence[Instance]) -> str:
    """Return why the newest lost instance ended; "" if no instance is lost.

    An instance that a user ended is not lost.
    """
    newest = ""
    for instance in sorted(tried, key=lambda each: each.launched):
        was_wanted = "UserInitiated" in instance.reason
        if instance.reason and not (instance.exists or was_wanted):
            newest = f"{instance.name} ended: {instance.reason}"
    return newest


def autoscaler_lines(location: Location, head: Instance) -> dict[str, list[str]]:
    """Ask Ray for the autoscaler's last log lines; {} without an answer."""
    lines: dict[str, list[str]] = {}
    with suppress(OutsideError), RayApi(address(location, head), location.token) as ray:
        for node in ray.nodes():
            if node.is_head and node.alive:
                for name in AUTOSCALER_FILES:
                    with suppress(FileMissingError):
                        lines[name] = _tail(ray, node.node_id, name)
    return lines


def _tail(ray: RayApi, node: str, name: str) -> list[str]:
    with ray.file(node, name, last_lines=TAIL_LINES) as chunks:
        return clean(b"".join(chunks).decode(errors="replace")).splitlines()


def _silent(spec: ClusterSpec, nodes: Sequence[NodeStatus]) -> Iterator[str]:
    """Yield what `up` waits for: pending nodes, and the end of surplus nodes.

    Pending nodes count only in a group below its minimum.
    """
    for group in desired.groups(spec).values():
        members = [node for node in nodes if node.group == group.name]
        pending = [node for node in members if node.state != "up"]
        if len(members) - len(pending) < group.least:
            for node in pending:
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
    if instance.state == "pending":
        return "starting", "boots"
    return "starting", instance.status or "boots"


def describe(instance: Instance, section: Ec2Section) -> dict[str, str]:
    """Return an instance's known facts."""
    facts = {
        "id": instance.id,
        "type": instance.type,
        "zone": instance.zone,
        "price_class": "spot" if instance.is_spot else "on demand",
        "address": snapshot.ip(section, instance),
    }
    return {name: value for name, value in facts.items() if value}


def age(instance: Instance) -> str:
    return duration((datetime.now(timezone.utc) - instance.launched).total_seconds())


def cost(aws: Aws, region: str, types: Sequence[str], *, at_most: bool) -> str:
    """Return the price as text, or "" if AWS's price list lacks it."""
    price = aws_prices.hourly(aws, region, types)
    if price is None:
        return ""
    return f"{'at most ' * at_most}{price:.2f} USD an hour"
