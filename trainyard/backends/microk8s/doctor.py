"""What will break on the hosts of a lab, besides what `up` would do there, and what mends it."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.backends.contract import Finding
from trainyard.backends.microk8s.join import VOTERS
from trainyard.backends.microk8s.lab import Host, Lab
from trainyard.backends.microk8s.leaving import back_up
from trainyard.backends.microk8s.snapshot import Snapshot, days
from trainyard.backends.shared.findings import FIX, UP
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted

RENEW_DAYS = 30
# `refresh-certs -e ca.crt` throws every worker out, and a kubelet's lasts as long as the CA.
RENEWABLE = ("server.crt", "front-proxy-client.crt")
RENEW_SECONDS = 120.0


def findings(lab: Lab, now: Snapshot) -> Iterator[Finding]:
    """Yield hosts that are dead, certificates that end soon, voters that are lacking, members that
    are nothing else.
    """
    yield from (Finding(name, error.what, error.hint or UP) for name, error in now.errors.items())
    for host in lab.hosts:
        fact = now.facts.get(host.name)
        for name, end in (fact.certificates if fact else {}).items():
            if days(end) <= RENEW_DAYS:
                message = (
                    f"{name} ends in {counted(days(end), 'day')}: nothing renews it, and "
                    "then nobody gets in"
                )
                step = None

                if name in RENEWABLE:
                    step = _renew_step(lab, host, name)

                yield Finding(
                    host.name, message, FIX if step else "Let the host leave, and join again.", step
                )

    voting = sum(now.votes.get(host.ip, False) for host in lab.control_planes)
    if now.votes and len(lab.control_planes) >= VOTERS > voting:
        message = (
            f"{counted(voting, 'voter')} instead of {VOTERS}: it takes no writes once most "
            "of them are lost"
        )
        yield Finding("dqlite", message, UP)

    # Where Kubernetes does not answer, nothing is known of its nodes.
    if now.nodes:
        ghosts = {*now.votes} - {*now.nodes} - {host.ip for host in lab.hosts}
    else:
        ghosts = set()

    for ip in sorted(ghosts):
        yield Finding(
            ip,
            "a dead member of dqlite, and no host: no control plane may join",
            FIX,
            _ghost_step(lab, ip),
        )


def _renew_step(lab: Lab, host: Host, name: str) -> Step:
    def done() -> Answer:
        lab.look_again()
        left = days(lab.fact(host).certificates[name])
        if left <= RENEW_DAYS:
            return no(f"it ends in {counted(left, 'day')}")
        # The API server starts anew with it.
        answers = host.microk8s("kubectl", "get", "--raw", "/readyz", check=False)
        if answers.code == 0:
            return YES
        return no("the API server does not answer yet")

    def renew() -> None:
        lab.lock()
        host.microk8s("refresh-certs", "-e", name, seconds=RENEW_SECONDS)
        lab.changed()

    return Step(
        f"renew:{host.name}:{name}",
        f"Renew {name} of {host.name}",
        done,
        renew,
        RENEW_SECONDS,
        every=1.0,
    )


def _ghost_step(lab: Lab, ip: str) -> Step:
    def done() -> Answer:
        lab.look_again()
        if ip in lab.members():
            return no("it is still a member")
        return YES

    def remove() -> None:
        lab.lock()
        back_up(lab.first)
        # It exits 1, since Kubernetes has no such node.
        lab.first.microk8s("remove-node", ip, "--force", check=False)
        lab.changed()

    return Step(f"remove-member:{ip}", f"Remove {ip} from dqlite", done, remove, every=1.0)
