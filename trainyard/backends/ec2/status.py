"""How a cluster on EC2 is, the endpoint that runs use, and what its nodes say."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from trainyard import versions
from trainyard.backends import contract
from trainyard.backends.contract import ClusterStatus, LogLine, Tools
from trainyard.backends.ec2 import desired, leash, naming, nodes, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import logs
from trainyard.backends.shared.logs import LogFile
from trainyard.backends.shared.ray_nodes import client_port, cluster_state
from trainyard.endpoint import Endpoint
from trainyard.errors import LockedOutError, OutsideError, RequestError
from trainyard.results.formats import duration
from trainyard.seams.ssh.login import HostError
from trainyard.spec.cluster import ClusterSpec

ANSWER_SECONDS = 20.0
# Whether it runs, when it last wrote, and what time it is there. The brackets: or it would find
# itself.
_ASK = (
    "grep -qsz '[a]utoscaler/v2/monitor.py' /proc/[0-9]*/cmdline && echo yes || echo no; "
    "stat -c %Y /tmp/ray/session_latest/logs/monitor.log; date +%s"
)


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask AWS about every instance of the cluster, and Ray about its nodes."""
    location = locations.find(spec, tools)
    found = snapshot.of_cluster(location)
    head = snapshot.head(found)
    names, detail = nodes.alive(location, head)
    every = nodes.statuses(spec, found, names)
    held = leash.observe(location, head) if names else None

    if head and names:
        remark = _autoscaler(location, head)
    else:
        remark = _no_leash(spec, found)

    return ClusterStatus(
        name=spec.name,
        backend=tools.backend,
        state=cluster_state(node.state for node in every),
        nodes=every,
        address=nodes.address(location, head) if head and names else None,
        token_file=location.token_file if location.token else None,
        detail="; ".join(
            filter(
                None, (detail, *(f"{node.name}: {node.detail}" for node in every if node.detail))
            )
        ),
        tunnel=f"{head.id} by SSH" if head and names else None,
        remark="; ".join(filter(None, (_stranger(location, found), remark))),
        token=location.token,
        differences=tuple(leashes.differences(spec, leash.made(head), held)) if names else (),
        leash=held,
    )


def _stranger(location: Location, found: Sequence[Instance]) -> str:
    """Say whose the cluster of that name is, if it is not ours."""
    try:
        for instance in found:
            if instance.exists:
                locations.refuse_foreign(location, instance.tags)
    except RequestError as error:
        return error.what
    return ""


def _no_leash(spec: ClusterSpec, found: Sequence[Instance]) -> str:
    """Say that instances run which no leash ends: it is set once Ray runs on the head."""
    is_set_up = any(each.is_head and each.runs and naming.HEAD_FROM in each.tags for each in found)
    runs = any(each.runs for each in found)
    if spec.leash and runs and not is_set_up:
        return "the leash of the file is not set: trainyard cluster.up"
    return ""


def _autoscaler(location: Location, head: Instance) -> str:
    """Say when the autoscaler on the head wrote its last line, or that it is dead, which nothing of
    Ray's says.
    """
    ran = snapshot.reach(location, head).run(
        snapshot.inside(head, ["bash", "-c", _ASK], terminal=False), seconds=ANSWER_SECONDS
    )
    runs, last, now = [*ran.stdout.split(), "", "", ""][:3]
    if not now:
        return "whether the autoscaler on the head runs is not known"
    if runs == "no":
        return (
            "the autoscaler on the head is dead: no node is launched, set up or ended any more. "
            "To replace all of "
            "it, which ends everything on the cluster: trainyard cluster.up --recreate"
        )

    age = duration(float(now) - float(last))
    return (
        f"the autoscaler on the head runs; it wrote its last line {age} ago, and writes when "
        "something changes"
    )


def billed(spec: ClusterSpec, tools: Tools) -> list[str]:
    found = snapshot.of_cluster(locations.find(spec, tools))
    return [
        f"{each.name} {each.id} {each.type}"
        for each in found
        if each.runs and naming.CLUSTER in each.tags
    ]


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the endpoint, a port that ends at the head's dashboard. Raises NotReadyError if no
    head runs.
    """
    location = locations.find(spec, tools)
    found = snapshot.of_cluster(location)
    head = snapshot.head(found)
    # One that plain `ray up` made may have runs.
    never_ran = (
        head is not None and naming.CLUSTER in head.tags and naming.HEAD_FROM not in head.tags
    )
    if head is None or head.state != "running" or never_ran:
        raise contract.not_up(spec.name)

    try:
        address = nodes.address(location, head)
    except HostError as error:
        raise LockedOutError(error.what, where=error.where, hint=error.hint) from error

    broken = ((each.name, each.state) for each in found if each.exists and not each.runs)
    return Endpoint(
        cluster=spec.name,
        address=address,
        token=location.token,
        expected=nodes.expected(spec, found),
        ray_version=versions.RAY,
        image=head.tags.get(naming.IMAGE),
        tunnel=f"{head.id} by SSH",
        down=tuple(broken),
        names_change=True,
        ray_address=lambda: nodes.ray_client(location, head, client_port(spec.head)),
    )


def log_lines(
    spec: ClusterSpec, tools: Tools, *, follow: bool, node: str = ""
) -> Iterator[LogLine]:
    """Return the last lines of the nodes' files, of the head's autoscaler, and of `ray up`, which
    set the head up.
    """
    location = locations.find(spec, tools)
    found = {each.name: each for each in snapshot.of_cluster(location) if each.exists}
    if node or not found:
        contract.pick(found, node, cluster=spec.name)

    head = found.get(naming.HEAD)

    def files() -> Iterator[LogFile]:
        if node in ("", naming.HEAD) and location.log.exists():
            lines = location.log.read_text(errors="replace").splitlines()[-logs.TAIL_LINES :]
            yield LogFile("ray up", naming.HEAD, location.log.name, lines)
        if head is not None and head.state == "running":
            # Who sets workers up is the autoscaler, on the head.
            for name, lines in nodes.autoscaler_lines(location, head).items():
                yield LogFile(name, naming.HEAD, name, lines)
            with suppress(OutsideError):
                yield from logs.ray_files(nodes.address(location, head), location.token, node)

    return logs.followed(files, lambda: follow)


def shell(spec: ClusterSpec, tools: Tools, *, node: str, command: str, terminal: bool) -> list[str]:
    """Return the `ssh` to a node's instance; where nodes are containers, what goes into the
    container there.
    """
    location = locations.find(spec, tools)
    found = {each.name: each for each in snapshot.of_cluster(location) if each.exists}
    ids = {each.id: each.name for each in found.values()}
    instance = contract.pick(found, ids.get(node, node), cluster=spec.name)
    address, identity = snapshot.login(location, instance)
    if command:
        # As in a shell that is interactive: ~/.bashrc reads it.
        command = f". {desired.files(instance.tags.get(naming.IMAGE, ''))}/environment; {command}"
    if naming.IMAGE in instance.tags:
        command = shlex.join(
            snapshot.inside(instance, contract.shell_words(command), terminal=terminal)
        )
    return address.shell(command, terminal=terminal, identity=identity)
