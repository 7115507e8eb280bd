"""A cluster's status, its nodes' logs and shells, and the runs' endpoint."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from trainyard import versions
from trainyard.backends import contract
from trainyard.backends.contract import ClusterStatus, LogLine, Site
from trainyard.backends.ec2 import desired, leash, naming, nodes, snapshot
from trainyard.backends.ec2 import location as locations
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import logs
from trainyard.backends.shared.logs import LogFile
from trainyard.backends.shared.ray_nodes import client_port, cluster_state
from trainyard.endpoint import Endpoint
from trainyard.errors import (
    LockedOutError,
    OutsideError,
    RequestError,
    TrainyardError,
    in_a_line,
)
from trainyard.results.formats import duration
from trainyard.seams.ssh.login import HostError
from trainyard.spec.cluster import ClusterSpec

ANSWER_SECONDS = 20.0
# Prints whether the autoscaler runs on the head, when it last wrote its log, and the head's time.
# The brackets keep grep from finding its own command line.
_ASK = (
    "grep -qsz '[a]utoscaler/v2/monitor.py' /proc/[0-9]*/cmdline && echo yes || echo no; "
    "stat -c %Y /tmp/ray/session_latest/logs/monitor.log; date +%s"
)


def status(spec: ClusterSpec, site: Site) -> ClusterStatus:
    """Ask AWS, Ray and the head (by SSH) for the cluster's status."""
    location = locations.find(spec, site)
    found = snapshot.of_cluster(location)
    head = snapshot.head(found)
    names, detail = nodes.alive(location, head)
    node_statuses = nodes.statuses(spec, found, names)
    details = [detail] if detail else []
    for node in node_statuses:
        if node.detail:
            details.append(f"{node.name}: {node.detail}")

    cluster = ClusterStatus(
        name=spec.name,
        backend=site.backend,
        state=cluster_state(node.state for node in node_statuses),
        nodes=node_statuses,
        token_file=location.token_file if location.token else None,
        detail="; ".join(details),
        token=location.token,
    )
    stranger = _stranger(location, found)
    if head is None or not names:
        remarks = filter(None, (stranger, _no_leash(spec, found)))
        return replace(cluster, remark="; ".join(remarks))

    running_leash = leash.observe(location, head)
    differences = leashes.differences(spec, leash.made(head), running_leash)
    return replace(
        cluster,
        address=nodes.address(location, head),
        tunnel=f"{head.id} by SSH",
        remark="; ".join(filter(None, (stranger, _autoscaler(location, head)))),
        differences=tuple(differences),
        leash=running_leash,
    )


def _stranger(location: Location, found: Sequence[Instance]) -> str:
    """Return a remark if the instances belong to another owner, else ""."""
    try:
        for instance in found:
            if instance.exists:
                locations.refuse_foreign(location, instance.tags)
    except RequestError as error:
        return error.what
    return ""


def _no_leash(spec: ClusterSpec, found: Sequence[Instance]) -> str:
    """Return a remark if instances run without the file's leash, else "".

    The leash is set once Ray runs on the head, so a failed `up` leaves
    instances without a leash.
    """
    is_set_up = any(each.is_head and each.runs and naming.HEAD_FROM in each.tags for each in found)
    runs = any(each.runs for each in found)
    if spec.leash and runs and not is_set_up:
        return "the leash of the file is not set: trainyard cluster.up"
    return ""


def _autoscaler(location: Location, head: Instance) -> str:
    """Ask the head by SSH if its autoscaler runs, and when it last wrote."""
    unknown = "it is not known whether the autoscaler on the head runs"
    words = snapshot.inside(head, ["bash", "-c", _ASK], terminal=False)
    try:
        ran = snapshot.reach(location, head).run(words, seconds=ANSWER_SECONDS)
    except TrainyardError as error:
        return f"{unknown}: {in_a_line(error)}"

    answers = ran.stdout.split()
    if len(answers) < 3:
        return unknown

    runs, last, now = answers[:3]
    if runs == "no":
        return (
            "the autoscaler on the head is dead: no node is launched, set up or ended any more. "
            "To replace the cluster, which ends everything on it: "
            "trainyard cluster.up --recreate"
        )

    age = duration(float(now) - float(last))
    return (
        f"the autoscaler on the head runs; it wrote its last line {age} ago, and writes when "
        "something changes"
    )


def billed(spec: ClusterSpec, site: Site) -> list[str]:
    lines = []
    for instance in snapshot.of_cluster(locations.find(spec, site)):
        if instance.runs and naming.CLUSTER in instance.tags:
            lines.append(f"{instance.name} {instance.id} {instance.type}")
    return lines


def connect(spec: ClusterSpec, site: Site) -> Endpoint:
    """Return the dashboard's endpoint, through an SSH tunnel.

    Raises NotReadyError if no head runs, and LockedOutError if a running head
    cannot be reached.
    """
    location = locations.find(spec, site)
    found = snapshot.of_cluster(location)
    head = snapshot.head(found)
    if head is None or head.state != "running":
        raise contract.not_up(spec.name)
    # A head of Trainyard without this tag was never set up. A head of plain `ray up` has no tags of
    # Trainyard, but may have runs.
    if naming.CLUSTER in head.tags and naming.HEAD_FROM not in head.tags:
        raise contract.not_up(spec.name)

    try:
        address = nodes.address(location, head)
    except HostError as error:
        raise LockedOutError(error.what, where=error.where, hint=error.hint) from error

    broken = [(each.name, each.state) for each in found if each.exists and not each.runs]
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


def log_lines(spec: ClusterSpec, site: Site, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    """Return the last log lines of nodes, autoscaler and newest `ray up`.

    With `follow`, also returns later lines.
    """
    location = locations.find(spec, site)
    found = {each.name: each for each in snapshot.of_cluster(location) if each.exists}
    if node or not found:
        contract.pick(found, node, cluster=spec.name)

    head = found.get(naming.HEAD)

    def files() -> Iterator[LogFile]:
        if node in ("", naming.HEAD) and location.log.exists():
            lines = location.log.read_text(errors="replace").splitlines()[-logs.TAIL_LINES :]
            yield LogFile("ray up", naming.HEAD, location.log.name, lines)
        if head is not None and head.state == "running":
            # The autoscaler's logs show the set-up of workers.
            for name, lines in nodes.autoscaler_lines(location, head).items():
                yield LogFile(name, naming.HEAD, name, lines)
            with suppress(OutsideError):
                yield from logs.ray_files(nodes.address(location, head), location.token, node)

    return logs.followed(files, lambda: follow)


def shell(spec: ClusterSpec, site: Site, *, node: str, command: str, terminal: bool) -> list[str]:
    """Return the `ssh` command to a node (a name or id), or its container."""
    location = locations.find(spec, site)
    found = {each.name: each for each in snapshot.of_cluster(location) if each.exists}
    ids = {each.id: each.name for each in found.values()}
    instance = contract.pick(found, ids.get(node, node), cluster=spec.name)
    address, identity = snapshot.login(location, instance)
    if command:
        # ~/.bashrc loads this file for interactive shells; a command must load it itself.
        command = f". {desired.files(instance.tags.get(naming.IMAGE, ''))}/environment; {command}"
    if naming.IMAGE in instance.tags:
        words = snapshot.inside(instance, contract.shell_words(command), terminal=terminal)
        command = shlex.join(words)
    return address.shell(command, terminal=terminal, identity=identity)
