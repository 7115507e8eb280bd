"""Removal of hosts that the file no longer names, and of hosts' remains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard_runner.wire.text import last_line

from trainyard.backends.contract import Site
from trainyard.backends.kuberay import naming
from trainyard.backends.kuberay.pods import internal_ip, is_ready
from trainyard.backends.microk8s import addresses, facts, install, remove
from trainyard.backends.microk8s.facts import LOCKS, Facts
from trainyard.backends.microk8s.join import ALONE, JOIN_SECONDS, is_part, refuse_dead_members
from trainyard.backends.microk8s.lab import MICROK8S, Host, Lab, each_step
from trainyard.errors import OutsideError, RequestError
from trainyard.seams.kube.types import Object
from trainyard.seams.programs import Ran
from trainyard.seams.ssh.connection import connect
from trainyard.seams.ssh.login import HostError
from trainyard.steps import YES, Answer, Step, no, nothing, warning
from trainyard.wording import named

# An annotation on each host's node. It keeps the SSH address that the file gave for the host, for
# the time after the host is removed from the file.
ADDRESS = "io.trainyard/ssh"
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=300s")
# dqlite writes its list of members to disk only every 30 s.
SETTLE_SECONDS = 60.0
# The exit code of `microk8s leave` on the host that has the only copy of the database
# (scripts/wrappers/leave.py).
ONLY_COPY = 3
# `microk8s leave` needs a file that a join writes last (wrappers/microk8s-leave.wrapper). A killed
# join has not written the file; its lock stays, and `leave` does not remove the lock.
LEAVE = f"touch {LOCKS}/no-cert-reissue; {MICROK8S} leave; rm -f {LOCKS}/join-in-progress"
ONLY_VOTER = (
    "If the host is the only voter: keep it in the file and let another control plane leave, or "
    "name three control planes."
)
NOT_OURS = (
    "Trainyard did not install that MicroK8s. Remove it there (sudo snap remove microk8s --purge), "
    "then repeat this command."
)
BACKUP = "/var/snap/microk8s/common/trainyard-backup"


def steps(lab: Lab, site: Site) -> list[Step]:
    """Return the steps that remove hosts, and remains of earlier joins.

    The steps come before any host joins. With --remove, the steps remove the
    cluster's hosts that the file no longer names. Without it, a step warns
    about these hosts.
    """
    # Without Kubernetes' answer no host would look like a node, and each would have to leave.
    if not lab.nodes():
        raise OutsideError(
            "no control plane answers", hint="Repeat the same command: it continues from here."
        )

    nodes = left_file(lab.hosts, lab.facts(), lab.nodes())
    if site.wishes.remove:
        _refuse_unknown_addresses(nodes, site)

    left = []
    for name, node in nodes.items():
        ssh = _address(node)
        connection = connect(ssh, site.environ)
        left.append(Host(name, internal_ip(node), ssh, connection, is_control_plane=False))

    remains = [_remains_step(lab, host) for host in lab.hosts if _has_remains(lab, host)]
    if site.wishes.remove or not left:
        removals = [_removal_step(lab, host, forced=site.wishes.force) for host in left]
        return removals + remains

    hosts = named([f"{host.name} ({host.ssh})" for host in left])
    found = warning(
        f"{hosts}: still in the cluster, and no longer in the file: trainyard cluster.up --remove"
    )
    title = "Check which hosts the file no longer names"
    return [*remains, Step("check-left-hosts", title, lambda: found, nothing)]


def left_file(
    hosts: Iterable[Host], known: Mapping[str, Facts], nodes: Mapping[str, Object]
) -> dict[str, Object]:
    """Return the nodes of hosts that the file no longer names, dead ones first.

    `known` are the facts of the file's hosts that answered. Nodes without
    Trainyard's annotation are left out.
    """
    names = {fact.node for fact in known.values()}
    ips = {host.ip for host in hosts}
    left = {}
    # While a dead node is a member of dqlite, no other node may leave.
    for name, node in sorted(nodes.items(), key=lambda item: is_ready(item[1])):
        is_in_file = name in names or internal_ip(node) in ips
        if _address(node) and not is_in_file:
            left[name] = node
    return left


def refuse_left(lab: Lab) -> None:
    """Raise RequestError if the cluster has hosts that the file does not name.

    Only the cluster knows these hosts' addresses: without the cluster, their
    MicroK8s would stay.
    """
    left = left_file(lab.hosts, lab.facts(), lab.nodes())
    if left:
        hosts = named([f"{name} ({_address(node)})" for name, node in left.items()])
        raise RequestError(
            f"in the cluster, and not in the file: {hosts}",
            hint="Write the host into the file again, or remove it first: trainyard cluster.up "
            "--remove",
        )


def _refuse_unknown_addresses(left: Mapping[str, Object], site: Site) -> None:
    """Raise RequestError for addresses that no cluster file here has named.

    The address in the node's annotation is not trusted (see addresses.py).
    """
    known = addresses.known(site)
    unknown = []
    for name, node in left.items():
        if _address(node) not in known:
            unknown.append(f"{name} ({_address(node)})")
    if unknown:
        raise RequestError(
            "no cluster file on this machine named the addresses that these nodes give: "
            f"{named(unknown)}",
            hint="If the addresses are right, name those hosts in the file, run trainyard "
            "cluster.up, and then remove the hosts from the file.",
        )


def address_step(lab: Lab, site: Site, *, after: str) -> Step:
    """Return the step that records hosts' SSH addresses on nodes and here."""
    every = {host.ssh for host in lab.hosts}

    def lacks(host: Host, fact: Facts) -> str:
        if not every <= addresses.known(site):
            return "its address is not recorded here"
        node = lab.nodes().get(fact.node)
        if node and _address(node) != host.ssh:
            return "its node does not have the file's address"
        return ""

    def annotate(host: Host) -> None:
        addresses.write(site, every)
        annotation = f"{ADDRESS}={host.ssh}"
        lab.first.microk8s(
            "kubectl", "annotate", "--overwrite", "node", lab.fact(host).node, annotation
        )

    title = "Write each host's address on its node"
    return each_step(lab, "node-addresses", title, lacks, annotate, after=after)


def back_up(control_plane: Host) -> None:
    """Back up the database, or raise NotReadyError after a time limit."""
    control_plane.microk8s("dbctl", "backup", "-o", BACKUP)


def _address(node: Mapping[str, Any]) -> str:
    return str((node["metadata"].get("annotations") or {}).get(ADDRESS, ""))


def _has_remains(lab: Lab, host: Host) -> bool:
    """Say whether a host that must join has remains of an earlier join.

    The cluster knows the host, or the host has files of a join. The join would
    be rejected ("already known to dqlite", 504), or would have no effect.
    """
    if host is lab.first or is_part(lab, host):
        return False
    fact = lab.fact(host)
    nodes = lab.nodes()
    known = {*nodes, *map(internal_ip, nodes.values()), *lab.members()}
    return fact.node in known or host.ip in known or fact.has_joined or fact.is_half_joined


def _remains_step(lab: Lab, host: Host) -> Step:
    def done() -> Answer:
        if _has_remains(lab, host):
            return no("it has remains of an earlier installation or join")
        return YES

    def clear() -> None:
        fact = lab.fact(host)
        if host.ip in lab.members():
            _before_a_member_leaves(lab, host)

        refused = _refused_to_leave(host, fact)
        is_purged = refused is not None and _may_be_purged(lab, host, fact, refused)
        if is_purged:
            remove.purge(host)

        for name in (host.ip, fact.node):
            # If Kubernetes has no node of this name, the command exits 1, but still removes the
            # member of dqlite.
            lab.first.microk8s("remove-node", name, "--force", check=False)

        if is_purged:
            install.install_again(host, lab)

        lab.changed()

    title = f"Remove what is left of {host.name}"
    id = f"remains:{host.name}"
    return Step(
        id, title, done, clear, deadline=SETTLE_SECONDS, every=1.0, disruptive=lab.is_ready(host)
    )


def _refused_to_leave(host: Host, fact: Facts) -> Ran | None:
    """Run `microk8s leave` on a host; return None if the host has left.

    Otherwise returns the result of `leave`. Starts a stopped host first, and
    waits until no join runs there. On a host that has not joined, only removes
    the lock of a failed join.
    """
    if fact.is_stopped:
        # `leave` fails on a stopped host (wrappers/microk8s-leave.wrapper: exit_if_stopped).
        install.start(host)
    script = LEAVE if fact.has_joined else f"rm -f {LOCKS}/join-in-progress"
    ran = host.root(*ALONE, "sh", "-euc", script, seconds=JOIN_SECONDS, check=False)
    if facts.read(host.connection, now=0.0).has_joined:
        return ran
    return None


def _may_be_purged(lab: Lab, host: Host, fact: Facts, refused: Ran) -> bool:
    """Say whether MicroK8s may be purged from a host that could not leave.

    Trainyard must have installed it, and the database must keep its quorum
    without the host.
    """
    voters = {member.host for member in lab.members().values() if member.is_voter}
    keeps_quorum = 2 * len(voters - {host.ip}) > len(voters)
    return fact.is_ours and refused.code != ONLY_COPY and keeps_quorum


def _before_a_member_leaves(lab: Lab, host: Host) -> None:
    refuse_dead_members(lab, but=host.ip)
    back_up(lab.first)


def _removal_step(lab: Lab, host: Host, *, forced: bool) -> Step:
    """Return the step that removes a host from the cluster.

    The node is removed last, because a repeated command finds the host by the
    node's address. With `forced`, a silent host is removed without being
    cleaned.
    """

    def done() -> Answer:
        is_left = host.name in lab.nodes() or host.ip in lab.members()
        if is_left:
            return no(
                f"no longer in the file; these Ray pods there will end: {_ray_pods(lab, host)}"
            )
        return YES

    def take_out() -> None:
        try:
            host.root("true")
        except HostError as error:
            if not forced:
                raise HostError(
                    f"{host.name} is no longer in the file, and cannot be told to leave: "
                    f"{error.what}",
                    where=error.where,
                    hint="Start the host again. If it no longer exists: "
                    "trainyard cluster.up --remove --force",
                ) from error

            if host.ip in lab.members():
                back_up(lab.first)
        else:
            _give_back(lab, host)

        lab.first.microk8s("remove-node", host.name, "--force")
        lab.changed()

    title = f"Remove {host.name} ({host.ssh})"
    id = f"remove-host:{host.name}"
    return Step(id, title, done, take_out, deadline=SETTLE_SECONDS, every=1.0, disruptive=True)


def _ray_pods(lab: Lab, host: Host) -> str:
    selectors = (
        f"--selector={naming.RAY_NODE_TYPE}",
        f"--field-selector=spec.nodeName={host.name}",
    )
    words = ("get", "pods", "--all-namespaces", *selectors, "--output=name")
    ran = lab.first.microk8s("kubectl", *words, check=False)
    return named(ran.stdout.replace("pod/", "").split()) or "none"


def _give_back(lab: Lab, host: Host) -> None:
    """Drain a host, let it leave, and remove from it what Trainyard installed.

    Raises OutsideError if another machine answers at the host's address, or the
    host cannot leave.
    """
    node = lab.nodes()[host.name]
    fact = facts.read(host.connection, now=0.0)
    if fact.machine_id != node["status"]["nodeInfo"]["machineID"]:
        hint = (
            "If the host no longer exists, remove it from Kubernetes with microk8s "
            "remove-node --force."
        )
        raise OutsideError(f"another machine than {host.name} answers at {host.ssh}", hint=hint)

    if host.ip in lab.members():
        _before_a_member_leaves(lab, host)

    # A drain waits for the kubelet to end pods, so it needs a live kubelet.
    if is_ready(node):
        lab.first.microk8s("kubectl", "drain", host.name, *DRAIN, seconds=330)

    refused = _refused_to_leave(host, fact)
    if refused is not None and not _may_be_purged(lab, host, fact, refused):
        lab.first.microk8s("kubectl", "uncordon", host.name)
        hint = ONLY_VOTER if fact.is_ours or refused.code == ONLY_COPY else NOT_OURS
        where = last_line(refused.stderr) or refused.stdout.partition("\n")[0]
        raise OutsideError(f"{host.name} does not leave", where=where, hint=hint)

    remove.give_back(host, fact)
