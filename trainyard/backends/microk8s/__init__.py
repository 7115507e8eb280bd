"""A multi-node MicroK8s on hosts that are reached by SSH, and then a cluster on it as on any
Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
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

# Of all services of a host together.
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
    """Return what each host would get, the values of the KubeRay operator, and what Kubernetes
    would get.
    """
    found = shown.documents(spec, _lab(spec, tools), tools.environ)
    # What Kubernetes would get depends on what it is: before there is one, it is not known.
    if _kubeconfig(tools).exists():
        return [*found, *kuberay.documents(spec, tools, _kubernetes(spec, tools))]
    return found


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> Sequence[Step | Stage]:
    """Return the steps that remove the cluster; with `purge`, MicroK8s from the hosts on which we
    installed it.
    """
    # What never was a Kubernetes, or is none any more, holds no cluster.
    removal: list[Step | Stage] = []
    if _kubeconfig(tools).exists():
        removal.append(
            Stage("kuberay", "KubeRay", lambda: _cluster_removal(spec, tools, purge=purge))
        )
    if not purge:
        return removal
    # Whatever the hosts refuse, they refuse before anything is removed.
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
    """Ask Kubernetes how the cluster is; the hosts are asked by who shows them."""
    now = ClusterStatus(spec.name, tools.backend, "absent", ())
    if _kubeconfig(tools).exists():
        try:
            now = kuberay.status(spec, tools, _kubernetes(spec, tools))
        except OutsideError as error:
            # The hosts may say why.
            now = replace(now, state="broken", detail=in_a_line(error))
    return replace(now, hosts=lambda: snapshot.statuses(_lab(spec, tools), now.nodes))


def diagnose(spec: ClusterSpec, tools: Tools) -> list[Finding]:
    """Look at the hosts; once there is a Kubernetes, ask also what `up` would do to them, and
    KubeRay.
    """
    hosts = _lab(spec, tools)
    now = snapshot.read(hosts)
    found = [*doctor.findings(hosts, now)]
    if not _kubeconfig(tools).exists():
        return found
    found += () if now.errors else unmet(lambda: _host_steps(spec, tools, hosts))
    with suppress(OutsideError):
        found += kuberay.diagnose(spec, tools, _kubernetes(spec, tools))
    return found


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    return kuberay.connect(spec, tools, _kubernetes(spec, tools))


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    """Return what the nodes' log files say, or a host's services."""
    if node and isinstance(host := _named(spec, tools, node), Host):
        return followed(lambda: [_service_log(host)], lambda: follow, first=FIRST_LINES)
    return kuberay.logs(spec, tools, _kubernetes(spec, tools), follow=follow, node=node)


def shell(spec: ClusterSpec, tools: Tools, *, node: str, command: str, terminal: bool) -> list[str]:
    """Return the program: `ssh` to a host; to a node by its first control plane, where kubectl
    is.
    """
    host = _named(spec, tools, node)
    if not isinstance(host, Host):
        words = location.exec_words(_where(spec, tools), host, command, terminal=terminal)
        first = _lab(spec, tools).first
        return first.connection.root_shell([lab.MICROK8S, "kubectl", *words], terminal=terminal)
    return host.connection.address.shell(command, terminal=terminal)


def _named(spec: ClusterSpec, tools: Tools, name: str) -> Host | Object:
    """Return the host, by its address or Kubernetes' name, or the pod of the node. Raises
    RequestError with all.
    """
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
    # Who has MicroK8s may have the image too.
    is_new = any(fact.snap is None for fact in facts.values())
    if is_new:
        pulled = resolve.pulled_bytes(spec, tools.environ, directory=tools.directory)
    else:
        pulled = 0

    desired = preflight.Desired(cluster.gpus(spec), pulled, _section(spec).registry)
    preflight.refuse(hosts.hosts, facts, desired, by_host(errors))
    refuse(errors)
    remarks = preflight.remarks(hosts.hosts, facts)
    closed = install.closed_channel(hosts, facts)
    unverified = offline.unverified(hosts) if is_new else ""
    said = {"firewalls": remarks, "channel": closed, "snaps": unverified}
    checks = [_remark(what, text) for what, text in said.items() if text]
    hosts.put_members_first()
    installed = install.steps(hosts, upgrade=_section(spec).upgrade)
    ready, *joined = join.steps(hosts)
    last = [ready, *joined][-1].id
    former = Stage(
        "left-hosts", "Look at the nodes", lambda: leaving.steps(hosts, tools), after=ready.id
    )
    rest = cluster.steps(spec, hosts, tools.environ, _kubeconfig(tools), after=last)

    made: list[Step | Stage] = [
        *checks,
        *installed,
        ready,
        former,
        *joined,
        leaving.address_step(hosts, tools, after=last),
        *rest,
    ]

    is_asked_later = _kubeconfig(tools).exists() or _section(spec).registry
    if is_asked_later:
        image = []
    else:
        image = [resolve.step(spec, tools.environ, directory=tools.directory)]

    return [*image, *before_each(made, question=hosts.look_again, change=hosts.lock)]


def _remark(what: str, text: str) -> Step:
    return Step(f"check-{what}", f"Check the {what}", lambda: warning(text), nothing)


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
    # The rules of ClusterSpec have seen to that.
    return cast(Microk8sSection, spec.microk8s)


def _kubernetes(spec: ClusterSpec, tools: Tools) -> KuberaySection:
    if not _kubeconfig(tools).exists():
        raise not_up(spec.name)
    control_planes = _lab(spec, tools).control_planes
    kubeconfig.choose_server(
        tools, _kubeconfig(tools), [host.server for host in control_planes if host.ip]
    )
    operator = spec.kuberay.operator.model_copy(update={"values": files.operator_values(spec)})
    found = {"kubeconfig": str(_kubeconfig(tools)), "context": None, "operator": operator}
    return spec.kuberay.model_copy(update=found)


def _kubeconfig(tools: Tools) -> Path:
    # Beside the cluster's own directory, which `down` removes: the lab stays.
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
