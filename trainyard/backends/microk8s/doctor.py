"""Present and future faults of a lab's hosts, for `cluster.doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.backends.contract import Finding
from trainyard.backends.microk8s.facts import Facts
from trainyard.backends.microk8s.join import VOTERS
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.backends.microk8s.leaving import back_up
from trainyard.backends.microk8s.snapshot import Snapshot, days
from trainyard.backends.shared.findings import FIX, UP
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted

RENEW_DAYS = 30
# Certificates that a step may renew. `refresh-certs -e ca.crt` would remove every worker from the
# cluster, and a kubelet's certificate lasts as long as the CA.
RENEWABLE = ("server.crt", "front-proxy-client.crt")
RENEW_SECONDS = 120.0


def findings(lab: Lab, now: Snapshot) -> Iterator[Finding]:
    """Yield silent hosts, expiring certificates, and faults of dqlite.

    The faults of dqlite are too few voters, and dead members. A dead member is
    in dqlite, but is neither a host of the file nor a node.
    """
    for name, error in now.errors.items():
        yield Finding(name, error.what, error.hint or UP)

    for host in lab.hosts:
        if host.name in now.facts:
            yield from _ending_certificates(lab, host, now.facts[host.name])

    voting = sum(now.votes.get(host.ip, False) for host in lab.control_planes)
    if now.votes and len(lab.control_planes) >= VOTERS > voting:
        message = (
            f"{counted(voting, 'voter')} instead of {VOTERS}: dqlite takes no writes once most "
            "voters are lost"
        )
        yield Finding("dqlite", message, UP)

    # Without an answer of Kubernetes, a live member would look dead.
    if not now.nodes:
        return
    ghosts = now.votes.keys() - now.nodes.keys() - {host.ip for host in lab.hosts}
    for ip in sorted(ghosts):
        message = "a dead member of dqlite that is no host of the file: no control plane may join"
        yield Finding(ip, message, FIX, _ghost_step(lab, ip))


def _ending_certificates(lab: Lab, host: Host, fact: Facts) -> Iterator[Finding]:
    for name, end in fact.certificates.items():
        if days(end) > RENEW_DAYS:
            continue
        left = counted(days(end), "day")
        message = f"{name} ends in {left}: nothing renews it, and then no user gets in"
        if name in RENEWABLE:
            yield Finding(host.name, message, FIX, _renew_step(lab, host, name))
        else:
            yield Finding(host.name, message, "Let the host leave, and join again.")


def _renew_step(lab: Lab, host: Host, name: str) -> Step:
    def done() -> Answer:
        lab.look_again()
        left = days(lab.fact(host).certificates[name])
        if left <= RENEW_DAYS:
            return no(f"it ends in {counted(left, 'day')}")
        # A renewal restarts the API server.
        answers = host.microk8s("kubectl", "get", "--raw", "/readyz", check=False)
        if answers.code == 0:
            return YES
        return no("the API server does not answer yet")

    def renew() -> None:
        lab.lock()
        host.microk8s("refresh-certs", "-e", name, seconds=RENEW_SECONDS)
        lab.changed()

    title = f"Renew {name} of {host.name}"
    return Step(f"renew:{host.name}:{name}", title, done, renew, RENEW_SECONDS, every=1.0)


def _ghost_step(lab: Lab, ip: str) -> Step:
    def done() -> Answer:
        lab.look_again()
        if ip in lab.members():
            return no("it is still a member")
        return YES

    def remove() -> None:
        lab.lock()
        back_up(lab.first)
        # The command removes the member, but exits 1, because Kubernetes has no such node.
        lab.first.microk8s("remove-node", ip, "--force", check=False)
        lab.changed()

    return Step(f"remove-member:{ip}", f"Remove {ip} from dqlite", done, remove, every=1.0)
