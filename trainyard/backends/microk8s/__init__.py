"""A multi-node MicroK8s on hosts that are reached by SSH, and a cluster on that Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from trainyard.backends import kuberay
from trainyard.backends.contract import (
    Backend,
    ClusterStatus,
    Finding,
    LogLine,
    Tools,
    Traits,
    Verified,
    not_up,
    pick,
)
from trainyard.backends.kuberay import location, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.purge import refuse_users
from trainyard.backends.kuberay.snapshot import node_pods
from trainyard.backends.microk8s import (
    addresses,
    cluster,
    doctor,
    files,
    install,
    join,
    kubeconfig,
    lab,
    leaving,
    offline,
    preflight,
    remove,
    shown,
    snapshot,
)
from trainyard.backends.microk8s.facts import Facts
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.backends.shared.findings import unmet
from trainyard.backends.shared.logs import TAIL_LINES, LogFile, followed
from trainyard.backends.shared.record import forget_step
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, in_a_line
from trainyard.images import resolve
from trainyard.seams.kube.errors import ApiUnreachableError
from trainyard.seams.kube.types import NODE, Object
from trainyard.seams.ssh.many import by_host, refuse
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection
from trainyard.spec.microk8s import Microk8sSection
from trainyard.steps import Stage, Step, before_each, nothing, warning
from trainyard.wording import counted

# Per host, for all its services together.
FIRST_LINES = 100


def up_steps(spec: ClusterSpec, tools: Tools) -> Sequence[Step | Stage]:
    """Return the steps: make the hosts a Kubernetes, then what `kuberay` does on any."""
    hosts = len(_section(spec).hosts)
    return [
        Stage(
            "hosts",
            f"Look at {counted(hosts, 'host')}",
            lambda: _host_steps(spec, tools, _lab(spec, tools)),
        ),
        Stage(
            "kuberay",
            "KubeRay",
            lambda: kuberay.up_steps(spec, tools, _kubernetes(spec, tools)),
            after=kubeconfig.STEP,
        ),
    ]


def documents(spec: ClusterSpec, tools: Tools) -> list[dict[str, Any]]:
    """Return the documents for each host, for the KubeRay operator, and for Kubernetes."""
    documents = shown.documents(spec, _lab(spec, tools), tools.environ)
    # Kubernetes' documents depend on its version: without one they are not known.
    if _kubeconfig(tools).exists():
        documents += kuberay.documents(spec, tools, _kubernetes(spec, tools))
    return documents


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> Sequence[Step | Stage]:
    """Return the steps that remove the cluster; with `purge`, also Trainyard's MicroK8s."""
    removal: list[Step | Stage] = []
    # Without a Kubernetes there is no cluster to remove.
    if _kubeconfig(tools).exists():
        removal.append(
            Stage("kuberay", "KubeRay", lambda: _cluster_removal(spec, tools, purge=purge))
        )
    if not purge:
        return removal

    # One stage: the hosts raise their errors before anything is removed.
    hosts = len(_section(spec).hosts)
    title = f"Look at {counted(hosts, 'host')}"
    return [Stage("hosts", title, lambda: [*removal, *_removal_steps(spec, tools)])]


def _cluster_removal(spec: ClusterSpec, tools: Tools, *, purge: bool) -> Sequence[Step | Stage]:
    section = _kubernetes(spec, tools)
    if purge:
        try:
            refuse_users(location.find(spec, tools, section), "MicroK8s")
        except ApiUnreachableError:
            # With Kubernetes goes all that is in it.
            return [forget_step(tools.state)]
    return kuberay.down_steps(spec, tools, section, purge=False)


def verify(spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]) -> Verified:
    return kuberay.verify(spec, tools, _kubernetes(spec, tools), report=report)


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask Kubernetes how the cluster is; hosts are asked once `hosts` of the status is called."""
    now = ClusterStatus(spec.name, tools.backend, "absent", ())
    if _kubeconfig(tools).exists():
        try:
            now = kuberay.status(spec, tools, _kubernetes(spec, tools))
        except OutsideError as error:
            # The hosts may say why.
            now = replace(now, state="broken", detail=in_a_line(error))
    return replace(now, hosts=lambda: snapshot.statuses(_lab(spec, tools), now.nodes))


def diagnose(spec: ClusterSpec, tools: Tools) -> list[Finding]:
    """Look at the hosts; with a Kubernetes, ask also what `up` would do to them, and KubeRay."""
    hosts = _lab(spec, tools)
    now = snapshot.read(hosts)
    findings = [*doctor.findings(hosts, now)]
    if not _kubeconfig(tools).exists():
        return findings

    if not now.errors:
        findings += unmet(lambda: _host_steps(spec, tools, hosts))
    with suppress(OutsideError):
        findings += kuberay.diagnose(spec, tools, _kubernetes(spec, tools))
    return findings


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    return kuberay.connect(spec, tools, _kubernetes(spec, tools))


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    """Return the lines of the nodes' log files, or of a host's services."""
    host = _named(spec, tools, node) if node else None
    if isinstance(host, Host):
        return followed(lambda: [_service_log(host)], lambda: follow, first=FIRST_LINES)
    return kuberay.logs(spec, tools, _kubernetes(spec, tools), follow=follow, node=node)


def shell(spec: ClusterSpec, tools: Tools, *, node: str, command: str, terminal: bool) -> list[str]:
    """Return `ssh` to a host; for a node, kubectl on the first control plane."""
    target = _named(spec, tools, node)
    if isinstance(target, Host):
        return target.connection.address.shell(command, terminal=terminal)

    words = location.exec_words(_where(spec, tools), target, command, terminal=terminal)
    first = _lab(spec, tools).first
    return first.connection.root_shell([lab.MICROK8S, "kubectl", *words], terminal=terminal)


def _named(spec: ClusterSpec, tools: Tools, name: str) -> Host | Object:
    """Return the host, by address or Kubernetes' name, or the node's pod; RequestError names all."""
    hosts = _lab(spec, tools).hosts
    known: dict[str, Host | Object] = {host.name: host for host in hosts}
    if name not in known and _kubeconfig(tools).exists():
        where = _where(spec, tools)
        nodes = {pods.internal_ip(node): pods.name(node) for node in where.kube.list(NODE)}
        known |= {nodes[host.ip]: host for host in hosts if host.ip in nodes}
        known |= node_pods(where)
    return pick(known, name, cluster=spec.name)


def _where(spec: ClusterSpec, tools: Tools) -> Location:
    return location.find(spec, tools, _kubernetes(spec, tools))


def _service_log(host: Host) -> LogFile:
    lines = host.root("snap", "logs", "-n", str(TAIL_LINES), "microk8s").stdout.splitlines()
    return LogFile(host.name, host.name, "snap", lines)


def _host_steps(spec: ClusterSpec, tools: Tools, hosts: Lab) -> Sequence[Step | Stage]:
    hosts.snaps = offline.snap_files(_section(spec), tools.directory)
    hosts.images = offline.image_files(_section(spec), tools.directory)
    facts, errors = hosts.ask(hosts.hosts)
    # Hosts with MicroK8s may have the image too.
    is_new = any(fact.snap is None for fact in facts.values())
    pulled = 0
    if is_new:
        pulled = resolve.pulled_bytes(spec, tools.environ, directory=tools.directory)

    desired = preflight.Desired(cluster.gpus(spec), pulled, _section(spec).registry)
    preflight.refuse(hosts.hosts, facts, desired, by_host(errors))
    refuse(errors)

    steps: list[Step | Stage] = [*_remarks(hosts, facts, is_new=is_new)]
    hosts.put_members_first()
    steps += install.steps(hosts, upgrade=_section(spec).upgrade)
    ready, *joins = join.steps(hosts)
    last = joins[-1].id if joins else ready.id
    left = Stage(
        "left-hosts", "Look at the nodes", lambda: leaving.steps(hosts, tools), after=ready.id
    )
    steps += [ready, left, *joins, leaving.address_step(hosts, tools, after=last)]
    steps += cluster.steps(spec, hosts, tools.environ, _kubeconfig(tools), after=last)

    steps = before_each(steps, question=hosts.look_again, change=hosts.lock)
    is_asked_later = _kubeconfig(tools).exists() or _section(spec).registry
    if not is_asked_later:
        steps.insert(0, resolve.step(spec, tools.environ, directory=tools.directory))
    return steps


def _remarks(hosts: Lab, facts: Mapping[str, Facts], *, is_new: bool) -> Iterator[Step]:
    """Yield a step for each remark; `is_new` says that MicroK8s is to be installed somewhere."""
    texts = {
        "firewalls": preflight.remarks(hosts.hosts, facts),
        "channel": install.closed_channel(hosts, facts),
        "snaps": offline.unverified(hosts) if is_new else "",
    }
    for subject, text in texts.items():
        if text:
            done = partial(warning, text)
            yield Step(f"check-{subject}", f"Check the {subject}", done, nothing)


def _removal_steps(spec: ClusterSpec, tools: Tools) -> list[Step | Stage]:
    hosts = _lab(spec, tools)
    leaving.refuse_left(hosts)
    return before_each(
        remove.steps(hosts, [_kubeconfig(tools), addresses.file(tools)]),
        question=hosts.look_again,
        change=hosts.lock,
    )


def _lab(spec: ClusterSpec, tools: Tools) -> Lab:
    return lab.of_section(_section(spec), tools.environ)


def _section(spec: ClusterSpec) -> Microk8sSection:
    # By a rule of ClusterSpec a file with this backend has the section.
    return cast(Microk8sSection, spec.microk8s)


def _kubernetes(spec: ClusterSpec, tools: Tools) -> KuberaySection:
    if not _kubeconfig(tools).exists():
        raise not_up(spec.name)
    control_planes = _lab(spec, tools).control_planes
    servers = [host.server for host in control_planes if host.ip]
    kubeconfig.choose_server(tools, _kubeconfig(tools), servers)
    operator = spec.kuberay.operator.model_copy(update={"values": files.operator_values(spec)})
    update = {"kubeconfig": str(_kubeconfig(tools)), "context": None, "operator": operator}
    return spec.kuberay.model_copy(update=update)


def _kubeconfig(tools: Tools) -> Path:
    # Next to the cluster's directory, which `down` removes: the lab stays.
    return tools.state.with_name(f"{tools.state.name}.kubeconfig")


BACKEND = Backend(
    traits=Traits(
        names_change=True,
        pushed_image="cluster.up",
        nodes_pull=True,
        leaves="MicroK8s stays on the hosts",
        joins_hosts=True,
        flags=kuberay.BACKEND.traits.flags,
        storage_stays=kuberay.BACKEND.traits.storage_stays,
    ),
    up_steps=up_steps,
    down_steps=down_steps,
    status=status,
    connect=connect,
    logs=logs,
    documents=documents,
    diagnose=diagnose,
    discover=kuberay.BACKEND.discover,
    shell=shell,
    verify=verify,
)
