"""MicroK8s on hosts with SSH, and on it a Ray cluster made by kuberay."""

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
    Site,
    Traits,
    Verified,
    not_up,
    pick,
)
from trainyard.backends.kuberay import location, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.purge import refuse_while_needed
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

# A host's log lines that are shown at first, from all its services together.
FIRST_LINES = 100


def up_steps(spec: ClusterSpec, site: Site) -> Sequence[Step | Stage]:
    """Return two stages: Kubernetes on the hosts, then kuberay's cluster."""
    hosts = len(_section(spec).hosts)
    return [
        Stage(
            "hosts",
            f"Look at {counted(hosts, 'host')}",
            lambda: _host_steps(spec, site, _lab(spec, site)),
        ),
        Stage(
            "kuberay",
            "KubeRay",
            lambda: kuberay.up_steps(spec, site, _kubernetes(spec, site)),
            after=kubeconfig.STEP,
        ),
    ]


def documents(spec: ClusterSpec, site: Site) -> list[dict[str, Any]]:
    """Return documents of hosts and operator, and Kubernetes objects.

    Asks the hosts. Without a Kubernetes, there are no objects.
    """
    documents = shown.documents(spec, _lab(spec, site), site.environ)
    # The objects depend on an existing Kubernetes.
    if _kubeconfig(site).exists():
        documents += kuberay.documents(spec, site, _kubernetes(spec, site))
    return documents


def down_steps(spec: ClusterSpec, site: Site, *, purge: bool) -> Sequence[Step | Stage]:
    """Return the steps that remove the cluster; with `purge`, also MicroK8s."""
    removal: list[Step | Stage] = []
    # A cluster exists only on a Kubernetes.
    if _kubeconfig(site).exists():
        removal.append(
            Stage("kuberay", "KubeRay", lambda: _cluster_removal(spec, site, purge=purge))
        )
    if not purge:
        return removal

    # A single stage raises the errors of all hosts before anything is removed.
    hosts = len(_section(spec).hosts)
    title = f"Look at {counted(hosts, 'host')}"
    return [Stage("hosts", title, lambda: [*removal, *_removal_steps(spec, site)])]


def _cluster_removal(spec: ClusterSpec, site: Site, *, purge: bool) -> Sequence[Step | Stage]:
    """Return the steps that remove the cluster from Kubernetes.

    With `purge`, raises RequestError if Kubernetes has Ray objects of others.
    If Kubernetes does not answer, `purge` only removes the record: MicroK8s'
    removal will remove everything in it.
    """
    section = _kubernetes(spec, site)
    if purge:
        try:
            refuse_while_needed(location.find(spec, site, section), "MicroK8s")
        except ApiUnreachableError:
            return [forget_step(site.state)]
    return kuberay.down_steps(spec, site, section, purge=False)


def verify(spec: ClusterSpec, site: Site, *, report: Callable[[str], None]) -> Verified:
    return kuberay.verify(spec, site, _kubernetes(spec, site), report=report)


def status(spec: ClusterSpec, site: Site) -> ClusterStatus:
    """Ask Kubernetes and Ray for the status; calling `hosts` asks the hosts."""
    now = ClusterStatus(spec.name, site.backend, "absent", ())
    if _kubeconfig(site).exists():
        try:
            now = kuberay.status(spec, site, _kubernetes(spec, site))
        except OutsideError as error:
            # The status of the hosts may say why Kubernetes does not answer.
            now = replace(now, state="broken", detail=in_a_line(error))
    return replace(now, hosts=lambda: snapshot.statuses(_lab(spec, site), now.nodes))


def diagnose(spec: ClusterSpec, site: Site) -> list[Finding]:
    """Return findings on the hosts, unfinished steps, and KubeRay."""
    hosts = _lab(spec, site)
    now = snapshot.read(hosts)
    findings = [*doctor.findings(hosts, now)]
    if not _kubeconfig(site).exists():
        return findings

    if not now.errors:
        findings += unmet(lambda: _host_steps(spec, site, hosts))
    with suppress(OutsideError):
        findings += kuberay.diagnose(spec, site, _kubernetes(spec, site))
    return findings


def connect(spec: ClusterSpec, site: Site) -> Endpoint:
    return kuberay.connect(spec, site, _kubernetes(spec, site))


def logs(spec: ClusterSpec, site: Site, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    """Return log lines of Ray nodes, or of services if `node` is a host."""
    host = _named(spec, site, node) if node else None
    if isinstance(host, Host):
        return followed(lambda: [_service_log(host)], lambda: follow, first=FIRST_LINES)
    return kuberay.logs(spec, site, _kubernetes(spec, site), follow=follow, node=node)


def shell(spec: ClusterSpec, site: Site, *, node: str, command: str, terminal: bool) -> list[str]:
    """Return the `ssh` command to a host, or to a Ray node's pod."""
    target = _named(spec, site, node)
    if isinstance(target, Host):
        return target.connection.address.shell(command, terminal=terminal)

    words = location.exec_words(_where(spec, site), target, command, terminal=terminal)
    first = _lab(spec, site).first
    return first.connection.root_shell([lab.MICROK8S, "kubectl", *words], terminal=terminal)


def _named(spec: ClusterSpec, site: Site, name: str) -> Host | Object:
    """Return the host, or a Ray node's pod, with this name.

    A host's name is its SSH address or its name in Kubernetes. Raises
    UnknownNodeError, which lists all names.
    """
    hosts = _lab(spec, site).hosts
    known: dict[str, Host | Object] = {host.name: host for host in hosts}
    if name not in known and _kubeconfig(site).exists():
        where = _where(spec, site)
        nodes = {pods.internal_ip(node): pods.name(node) for node in where.kube.list(NODE)}
        known |= {nodes[host.ip]: host for host in hosts if host.ip in nodes}
        known |= node_pods(where)
    return pick(known, name, cluster=spec.name)


def _where(spec: ClusterSpec, site: Site) -> Location:
    return location.find(spec, site, _kubernetes(spec, site))


def _service_log(host: Host) -> LogFile:
    lines = host.root("snap", "logs", "-n", str(TAIL_LINES), "microk8s").stdout.splitlines()
    return LogFile(host.name, host.name, "snap", lines)


def _host_steps(spec: ClusterSpec, site: Site, hosts: Lab) -> Sequence[Step | Stage]:
    hosts.snaps = offline.snap_files(_section(spec), site.directory)
    hosts.images = offline.image_files(_section(spec), site.directory)
    facts, errors = hosts.ask(hosts.hosts)
    # The image's size matters only for disks of new hosts: the others may have the image already.
    is_new = any(fact.snap is None for fact in facts.values())
    pulled = 0
    if is_new:
        pulled = resolve.pulled_bytes(spec, site.environ, directory=site.directory)

    desired = preflight.Desired(cluster.gpus(spec), pulled, _section(spec).registry)
    preflight.refuse(hosts.hosts, facts, desired, by_host(errors))
    refuse(errors)

    steps: list[Step | Stage] = [*_remarks(hosts, facts, is_new=is_new)]
    hosts.put_members_first()
    steps += install.steps(hosts, upgrade=_section(spec).upgrade)
    ready, *joins = join.steps(hosts)
    last = joins[-1].id if joins else ready.id
    left = Stage(
        "left-hosts", "Look at the nodes", lambda: leaving.steps(hosts, site), after=ready.id
    )
    steps += [ready, left, *joins, leaving.address_step(hosts, site, after=last)]
    steps += cluster.steps(spec, hosts, site.environ, _kubeconfig(site), after=last)

    steps = before_each(steps, question=hosts.look_again, change=hosts.lock)
    is_asked_later = _kubeconfig(site).exists() or _section(spec).registry
    if not is_asked_later:
        steps.insert(0, resolve.step(spec, site.environ, directory=site.directory))
    return steps


def _remarks(hosts: Lab, facts: Mapping[str, Facts], *, is_new: bool) -> Iterator[Step]:
    """Yield a step for each warning; `is_new`: some host gets MicroK8s."""
    texts = {
        "firewalls": preflight.remarks(hosts.hosts, facts),
        "channel": install.closed_channel(hosts, facts),
        "snaps": offline.unverified(hosts) if is_new else "",
    }
    for subject, text in texts.items():
        if text:
            done = partial(warning, text)
            yield Step(f"check-{subject}", f"Check the {subject}", done, nothing)


def _removal_steps(spec: ClusterSpec, site: Site) -> list[Step | Stage]:
    hosts = _lab(spec, site)
    leaving.refuse_left(hosts)
    return before_each(
        remove.steps(hosts, [_kubeconfig(site), addresses.file(site)]),
        question=hosts.look_again,
        change=hosts.lock,
    )


def _lab(spec: ClusterSpec, site: Site) -> Lab:
    return lab.of_section(_section(spec), site.environ)


def _section(spec: ClusterSpec) -> Microk8sSection:
    # ClusterSpec rejects a file with this backend and without this section.
    return cast(Microk8sSection, spec.microk8s)


def _kubernetes(spec: ClusterSpec, site: Site) -> KuberaySection:
    if not _kubeconfig(site).exists():
        raise not_up(spec.name)
    control_planes = _lab(spec, site).control_planes
    servers = [host.server for host in control_planes if host.ip]
    kubeconfig.choose_server(site, _kubeconfig(site), servers)
    operator = spec.kuberay.operator.model_copy(update={"values": files.operator_values(spec)})
    update = {"kubeconfig": str(_kubeconfig(site)), "context": None, "operator": operator}
    return spec.kuberay.model_copy(update=update)


def _kubeconfig(site: Site) -> Path:
    # `down` removes the cluster's directory, but MicroK8s and this file stay.
    return site.state.with_name(f"{site.state.name}.kubeconfig")


BACKEND = Backend(
    traits=Traits(
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
