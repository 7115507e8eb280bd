"""From hosts that each run a MicroK8s of their own to one cluster: control planes one by one, workers side by side."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.backends.microk8s.lab import Host, Lab, each
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted, named

AGENT_PORT = 25000
API_PORT = 16443
JOIN_SECONDS = 300.0
READY_SECONDS = 180.0
# As long as the joins of a whole batch may take.
TOKEN_SECONDS = 1200
# From how many control planes on each of them votes (go-dqlite, roles).
ALL_VOTE = 3
TOKENS = "/var/snap/microk8s/current/credentials/cluster-tokens.txt"


def steps(lab: Lab) -> list[Step]:
    first = lab.control_planes[0]
    ready = _first_step(lab, first)
    joins = [_control_plane_step(lab, first, host, after=ready.title) for host in lab.control_planes[1:]]
    workers = [_workers_step(lab, first, after=ready.title)] if lab.workers else []
    return [ready, *joins, *workers]


def is_ready(node: Mapping[str, Any] | None) -> bool:
    conditions = node["status"].get("conditions") or () if node else ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _first_step(lab: Lab, first: Host) -> Step:
    def done() -> Answer:
        node = lab.nodes().get(lab.facts([first])[first.name].node)
        return YES if is_ready(node) else no("its node is not Ready yet")

    def wait() -> None:
        # The code says nothing; with a timeout of 0 it would wait for ever.
        first.microk8s("status", "--wait-ready", "--timeout", "120", seconds=150, check=False)
        lab.changed()

    return Step(f"{first.name} is a control plane", done, wait, deadline=READY_SECONDS, every=1.0)


def _control_plane_step(lab: Lab, first: Host, host: Host, *, after: str) -> Step:
    def done() -> Answer:
        facts = lab.facts([first, host])
        node = lab.nodes().get(facts[host.name].node)
        members = {member.host: member for member in facts[first.name].members}
        if node is None or facts[host.name].is_worker:
            return no("it has not joined")
        if not is_ready(node):
            return no("its node is not Ready")
        votes = len(members) < ALL_VOTE or (host.ip in members and members[host.ip].is_voter)
        return YES if votes else no("it does not vote yet")

    def join() -> None:
        _refuse_dead_members(lab, first)
        _join(lab, first, [host], "--controlplane")

    return Step(f"Join {host.name} as a control plane", done, join, deadline=READY_SECONDS, every=1.0, after=after)


def _workers_step(lab: Lab, first: Host, *, after: str) -> Step:
    def missing() -> list[Host]:
        nodes, facts = lab.nodes(), lab.facts()
        return [host for host in lab.workers if facts[host.name].node not in nodes or not facts[host.name].is_worker]

    def done() -> Answer:
        absent = missing()
        if absent:
            return no(f"{named([host.name for host in absent])}: has not joined")
        nodes, facts = lab.nodes(), lab.facts()
        waiting = [host.name for host in lab.workers if not is_ready(nodes.get(facts[host.name].node))]
        return no(f"{named(waiting)}: its node is not Ready") if waiting else YES

    def join() -> None:
        absent = missing()
        if absent:
            _join(lab, first, absent, "--worker")

    title = f"Join {counted(len(lab.workers), 'worker')}"
    return Step(title, done, join, deadline=READY_SECONDS, every=1.0, after=after)


def _join(lab: Lab, first: Host, hosts: Sequence[Host], role: str) -> None:
    """Let hosts join, side by side, with one token for all: one without a TTL is used up by a join that fails."""
    _leave_former(lab, hosts)
    _remove_ghosts(lab, first, hosts)
    token = secrets.token_hex(16)
    # Written by way of the input: what stands in a command is seen by every user there.
    first.root(
        "sh",
        "-euc",
        f'read -r token; {_MICROK8S} add-node --token-ttl {TOKEN_SECONDS} --token "$token"',
        stdin=f"{token}\n".encode(),
    )
    check = first.root("sh", "-euc", _CHECK).stdout.strip()[:12]
    try:
        each(hosts, lambda host: _join_one(host, first, f"{token}/{check}", role))
    finally:
        first.root("sh", "-euc", f'read -r token; sed -i "/^$token|/d" {TOKENS}', stdin=f"{token}\n".encode())
        lab.changed()


_MICROK8S = "/snap/bin/microk8s"
_CHECK = "openssl x509 -in /var/snap/microk8s/current/certs/server.crt -outform der | sha256sum"
_REACH = 'timeout 5 bash -c "exec 3<> /dev/tcp/$0/$1"'


def _join_one(host: Host, first: Host, token: str, role: str) -> None:
    for port, what in ((AGENT_PORT, "the cluster agent"), (API_PORT, "the API server")):
        if host.root("bash", "-c", _REACH, first.ip, str(port), check=False).code != 0:
            raise PrerequisiteError(
                f"{host.name} does not reach {what} of {first.name}",
                where=f"{first.ip}:{port}",
                hint=f"Let it through the firewalls between them; or name the one that works: `ip:` of {first.name}.",
            )
    script = f'read -r token; {_MICROK8S} join {first.ip}:{AGENT_PORT}/"$token" {role}'
    ran = host.root("sh", "-euc", script, stdin=f"{token}\n".encode(), seconds=JOIN_SECONDS, check=False)
    # What it printed last is the reason; a code of 0 is proven by the node.
    if ran.code != 0:
        printed = (ran.stdout.strip() or ran.stderr.strip()).rpartition("\n")[2]
        raise OutsideError(
            f"{host.name} could not join",
            where=printed or f"exit code {ran.code}",
            hint="Repeat the same command: what the failed join left is removed first.",
        )


def _leave_former(lab: Lab, hosts: Sequence[Host]) -> None:
    """Take hosts out of what they were half or wholly part of: a join of such a host succeeds and joins nothing."""
    facts = lab.facts(hosts)

    def leave(host: Host) -> None:
        if facts[host.name].is_worker or facts[host.name].has_joined or "join-in-progress" in facts[host.name].locks:
            host.microk8s("leave", seconds=JOIN_SECONDS, check=False)

    each(hosts, leave)


def _remove_ghosts(lab: Lab, first: Host, hosts: Sequence[Host]) -> None:
    """Remove members and nodes that are left of hosts which are to join: "already known to dqlite (504)" otherwise."""
    members = {member.host for member in lab.facts([first])[first.name].members}
    nodes = lab.nodes()
    facts = lab.facts(hosts)
    for host in hosts:
        if host.ip in members or facts[host.name].node in nodes:
            # It exits 1 where Kubernetes has no such node, although it removed the member.
            first.microk8s("remove-node", host.ip, "--force", check=False)


def _refuse_dead_members(lab: Lab, first: Host) -> None:
    """Raise OutsideError while a member is dead: a join then took whole control planes down (microk8s#2348)."""
    nodes = lab.nodes()
    by_address = {
        address["address"]: name
        for name, node in nodes.items()
        for address in node["status"].get("addresses") or ()
        if address["type"] == "InternalIP"
    }
    members = [member.host for member in lab.facts([first])[first.name].members]
    dead = [host for host in members if host in by_address and not is_ready(nodes[by_address[host]])]
    if dead:
        raise OutsideError(
            f"no control plane may join while {named(dead)} is dead: the others could lose the database",
            hint=f"Bring that host back; or, for good, on {first.name}: sudo microk8s remove-node {dead[0]} --force",
        )
