"""A snapshot of a lab: hosts' facts or errors, and Kubernetes' nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainyard.backends.contract import HostRole, HostState, HostStatus, NodeStatus
from trainyard.backends.kuberay import pods
from trainyard.backends.microk8s.facts import Facts
from trainyard.backends.microk8s.install import KUBELET_PORT
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.backends.microk8s.leaving import left_file
from trainyard.errors import TrainyardError, in_a_line
from trainyard.seams.kube.types import Object

DAY = 86400
LEFT = "not in the file any more: trainyard cluster.up --remove"


@dataclass(frozen=True)
class Snapshot:
    """The facts of hosts that answered, and the others' errors, by name.

    `nodes` are Kubernetes' nodes by IP; {} without an answer. `votes` has the
    members of dqlite by IP, and whether each votes.
    """

    facts: Mapping[str, Facts]
    errors: Mapping[str, TrainyardError]
    nodes: Mapping[str, Object]
    votes: Mapping[str, bool]


def read(lab: Lab) -> Snapshot:
    """Ask all hosts in parallel, then Kubernetes through a control plane."""
    facts, errors = lab.ask(lab.hosts)
    answered = [host for host in lab.control_planes if host.name in facts]
    planes = [host for host in answered if facts[host.name].members]
    if not planes:
        return Snapshot(facts, errors, {}, {})

    alive = Lab(planes, lab.channel, dict(facts))
    alive.put_members_first()
    nodes = {pods.internal_ip(node): node for node in alive.nodes().values()}
    votes = {}
    for ip, member in alive.members().items():
        # A single control plane has a loopback address in dqlite's list.
        reached = alive.first.ip if ip.startswith("127.") else ip
        votes[reached] = member.is_voter
    return Snapshot(facts, errors, nodes, votes)


def statuses(lab: Lab, nodes: Sequence[NodeStatus]) -> tuple[HostStatus, ...]:
    """Ask all hosts and Kubernetes; return the status of every host.

    Includes hosts of the cluster that the file no longer names. `nodes` are the
    Ray nodes.
    """
    return of(lab.hosts, read(lab), nodes)


def of(hosts: Sequence[Host], now: Snapshot, nodes: Sequence[NodeStatus]) -> tuple[HostStatus, ...]:
    statuses = [status(host, now, nodes) for host in hosts]
    by_name = {pods.name(node): node for node in now.nodes.values()}
    for name, node in left_file(hosts, now.facts, by_name).items():
        statuses.append(_status_of_left(name, node, now, nodes))
    return tuple(statuses)


def status(host: Host, now: Snapshot, nodes: Sequence[NodeStatus]) -> HostStatus:
    """Return the status of a host that the file names."""
    fact = now.facts.get(host.name)
    node = now.nodes.get(host.ip)
    ends = []
    if fact:
        ends = sorted((end, name) for name, end in fact.certificates.items())
    state, detail = _state(host, now)

    return HostStatus(
        name=host.name,
        address=host.ip,
        role="control plane" if host.is_control_plane else "worker",
        state=state,
        version=fact.snap.version if fact and fact.snap else None,
        voter=now.votes.get(host.ip),
        certificate=ends[0][1] if ends else None,
        certificate_days=days(ends[0][0]) if ends else None,
        nodes=tuple(ray.name for ray in nodes if node and ray.host == pods.name(node)),
        gpus=fact.gpus if fact else None,
        detail=detail,
        host=pods.name(node) if node else None,
    )


def _status_of_left(
    name: str, node: Object, now: Snapshot, nodes: Sequence[NodeStatus]
) -> HostStatus:
    ip = pods.internal_ip(node)
    on_it = tuple(ray.name for ray in nodes if ray.host == name)
    role: HostRole = "control plane" if ip in now.votes else "worker"
    state: HostState = "ready" if pods.is_ready(node) else "not ready"
    version = node["status"]["nodeInfo"]["kubeletVersion"]
    voter = now.votes.get(ip)
    return HostStatus(name, ip, role, state, version, voter, None, None, on_it, None, LEFT, name)


def days(end: float) -> int:
    return round((end - time.time()) / DAY)


def _state(host: Host, now: Snapshot) -> tuple[HostState, str]:
    error = now.errors.get(host.name)
    if error:
        return "unreachable", in_a_line(error)

    fact = now.facts[host.name]
    node = now.nodes.get(host.ip)
    if fact.is_bare:
        return "not joined", "MicroK8s is not installed"
    # The host's facts take precedence: Kubernetes notices a dead kubelet only after 40 s or more.
    if fact.is_stopped or KUBELET_PORT not in fact.listening:
        return "not ready", "MicroK8s is stopped" if fact.is_stopped else "its kubelet does not run"
    if not now.nodes:
        return "not ready", "no control plane answers"
    if node is None:
        return "not joined", "it is no node of this Kubernetes"
    if pods.is_ready(node):
        return "ready", ""
    return "not ready", "its kubelet does not report to Kubernetes"
