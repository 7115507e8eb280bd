"""Join hosts into one cluster: control planes one by one, workers together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from trainyard_runner.wire.text import last_line

from trainyard.backends.microk8s.lab import API_PORT, MICROK8S, Host, Lab
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.ssh.hosts import each
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted, named

AGENT_PORT = 25000
DQLITE_PORT = 19001
JOIN_SECONDS = 300.0
READY_SECONDS = 180.0
# A killed command's join still runs on the host. This lock makes the next join wait.
ALONE = ("flock", "--close", "/var/snap/microk8s")
# The joins of all workers share one token, which expires after this time.
TOKEN_SECONDS = 1200
# With three or more control planes, three vote; the others are spares (go-dqlite, roles).
VOTERS = 3
# The files of join tokens. A worker's join adds a second token, TOKEN-..., for its certificates.
TOKENS = "/var/snap/microk8s/current/credentials/*-tokens.txt"


def steps(lab: Lab) -> list[Step]:
    ready = _first_step(lab)
    steps = [ready]
    for host in lab.control_planes[1:]:
        steps.append(_control_plane_step(lab, host, after=ready.id))
    if lab.workers:
        steps.append(_workers_step(lab, after=ready.id))
    return steps


def is_part(lab: Lab, host: Host) -> bool:
    """Say whether both host and cluster know the node, in the file's role."""
    fact = lab.fact(host)
    # After a killed join, a host may be a node, but can never leave, so it has to join again.
    if fact.is_half_joined or fact.node not in lab.nodes():
        return False
    if fact.is_worker == host.is_control_plane:
        return False
    return fact.is_worker or lab.first.ip in {member.host for member in fact.members}


def _first_step(lab: Lab) -> Step:
    def done() -> Answer:
        if lab.is_ready(lab.first):
            return YES
        return lab.not_ready(lab.first)

    # `changed` makes each poll ask the host again.
    title = f"{lab.first.name} is a control plane"
    return Step("first-control-plane", title, done, lab.changed, deadline=READY_SECONDS, every=1.0)


def _control_plane_step(lab: Lab, host: Host, *, after: str) -> Step:
    """Return the step that joins a host, or waits for one that is part."""

    def done() -> Answer:
        if not is_part(lab, host):
            return no("it has not joined")
        if not lab.is_ready(host):
            return lab.not_ready(host)

        members = lab.members()
        if host.ip not in members:
            return no("it is no member of dqlite yet")

        voting = sum(member.is_voter for member in members.values())
        # Fewer than VOTERS members cannot give VOTERS votes.
        if len(members) >= VOTERS and voting < VOTERS:
            return no(f"{voting} of {len(members)} members vote")
        return YES

    def join() -> None:
        if not is_part(lab, host):
            refuse_dead_members(lab)
            # Not `--controlplane`: it sets the parameter of `--worker` to "as-master", which
            # MicroK8s (join.py:689) takes as true, so the host would join as a worker.
            _join(lab, [host])

    title = f"Join {host.name} as a control plane"
    return Step(
        f"join:{host.name}", title, done, join, deadline=READY_SECONDS, every=1.0, after=after
    )


def _workers_step(lab: Lab, *, after: str) -> Step:
    def missing() -> list[Host]:
        # This asks all hosts in parallel; `is_part` would ask one by one.
        lab.facts()
        # Without an answer of a control plane, every worker would look missing.
        if lab.nodes():
            return [host for host in lab.workers if not is_part(lab, host)]
        return []

    def done() -> Answer:
        outside = missing()
        if outside:
            return no(f"{named([host.name for host in outside])}: has not joined")

        pending = [host for host in lab.workers if not lab.is_ready(host)]
        if not pending:
            return YES
        first = lab.not_ready(pending[0])
        names = named([host.name for host in pending])
        return replace(first, detail=f"{names}: {first.detail}", moved=lab.pulled(lab.workers))

    def join() -> None:
        outside = missing()
        if outside:
            _join(lab, outside, "--worker")

    title = f"Join {counted(len(lab.workers), 'worker')}"
    return Step("join-workers", title, done, join, deadline=READY_SECONDS, every=1.0, after=after)


def _join(lab: Lab, hosts: Sequence[Host], *flags: str) -> None:
    """Let hosts join in parallel with one token, which is deleted afterwards.

    The token has a TTL: without a TTL, even a failed join would use up the
    token.
    """
    first = lab.first
    added = first.microk8s("add-node", "--token-ttl", str(TOKEN_SECONDS), "--format", "json").stdout
    # The token (TOKEN/CHECK) is passed by standard input: any user on the host can see a command's
    # arguments.
    token = str(json.loads(added)["token"])
    try:
        each(hosts, lambda host: _join_one(host, first, token, flags))
    finally:
        forget = f'IFS=/ read -r token check; sed -i "/^$token[|-]/d" {TOKENS}'
        first.root("sh", "-euc", forget, stdin=f"{token}\n".encode())
        lab.changed()


def _join_one(host: Host, first: Host, token: str, flags: Sequence[str]) -> None:
    """Run `microk8s join` on a host.

    A normal return does not prove that the host has joined. Raises
    PrerequisiteError if the host does not reach the first control plane's
    ports, and OutsideError if the join fails.
    """
    for port, service in ((AGENT_PORT, "the cluster agent"), (API_PORT, "the API server")):
        if not host.reaches(first.ip, port):
            raise PrerequisiteError(
                f"{host.name} does not reach {service} of {first.name}",
                where=f"{first.ip}:{port}",
                hint="Open that port in the firewalls between the hosts; or set the address that "
                f"works: `ip:` of {first.name}.",
            )

    join = " ".join([*ALONE, MICROK8S, "join", f'{first.ip}:{AGENT_PORT}/"$token"', *flags])
    script = f"read -r token; exec {join}"
    ran = host.root(
        "sh", "-euc", script, stdin=f"{token}\n".encode(), seconds=JOIN_SECONDS, check=False
    )
    # The last line of a failed join, even of a traceback, is the reason. After code 0 the caller's
    # step still waits for the node.
    if ran.code != 0:
        printed = "; ".join(filter(None, (last_line(ran.stdout), last_line(ran.stderr))))
        raise OutsideError(
            f"{host.name} could not join",
            where=printed or f"exit code {ran.code}",
            hint="Repeat the same command: what the failed join left is removed first.",
        )


def refuse_dead_members(lab: Lab, *, but: str = "") -> None:
    """Raise OutsideError if a member of dqlite other than `but` is silent.

    A change of members could then lose the whole database (microk8s#2348). The
    first control plane tries the members' ports: without a quorum, Kubernetes
    still calls a dead node Ready.
    """
    dead = [ip for ip in lab.members() if ip != but and not lab.first.reaches(ip, DQLITE_PORT)]
    if dead:
        raise OutsideError(
            f"no control plane may join or leave while the database on {named(dead)} is dead: "
            "the whole cluster's database could be lost",
            hint="Start MicroK8s on that host: sudo snap start microk8s. If the host no longer "
            "exists, remove it from the file, and: trainyard cluster.up --remove --force",
        )
