"""A lab: the hosts of a MicroK8s cluster, and their latest facts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.backends.kuberay import pods
from trainyard.backends.microk8s import facts, pulls
from trainyard.backends.microk8s.facts import Facts, Member
from trainyard.errors import TrainyardError
from trainyard.seams.kube.types import Object
from trainyard.seams.programs import Ran
from trainyard.seams.ssh import hosts as ssh_hosts
from trainyard.seams.ssh import lock
from trainyard.seams.ssh.connection import Held
from trainyard.seams.ssh.hosts import each, try_each
from trainyard.seams.ssh.many import refuse
from trainyard.spec.microk8s import Microk8sSection
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import named

# sshd's or sudo's PATH may lack /snap/bin.
MICROK8S = "/snap/bin/microk8s"
API_PORT = 16443
LOCK_FILE = "/run/trainyard.lock"


@dataclass(frozen=True)
class Host(ssh_hosts.Host):
    """A host of a lab, with its role in the file."""

    is_control_plane: bool

    @property
    def server(self) -> str:
        return f"https://{self.ip}:{API_PORT}"

    def microk8s(self, *words: str, seconds: float = 60.0, check: bool = True) -> Ran:
        """Run `microk8s WORDS` as root.

        MicroK8s may exit 0 without an effect.
        """
        return self.root(MICROK8S, *words, seconds=seconds, check=check)


@dataclass
class Lab:
    """A cluster file's hosts, control planes first, and their installation.

    MicroK8s is installed from `channel`, or from the files `snaps`; the last of
    these is MicroK8s itself. `images` are image files to load. `mirrors` are
    URLs by registry. Answers of hosts are cached until `changed` is called.
    From then on each `look_again`, which steps call before each check, drops
    the cached answers.
    """

    hosts: Sequence[Host]
    channel: str
    _facts: dict[str, Facts] = field(default_factory=dict)
    _nodes: dict[str, Object] | None = None
    _changed: bool = False
    _lock: Held | None = None
    snaps: Sequence[Path] = ()
    images: Sequence[Path] = ()
    mirrors: Mapping[str, str] = field(default_factory=dict)

    @property
    def first(self) -> Host:
        """Return the control plane to join, and to ask about the cluster."""
        return self.control_planes[0]

    @property
    def release(self) -> str:
        if self.snaps:
            return f"from {self.snaps[-1].name}"
        return self.channel

    @property
    def control_planes(self) -> list[Host]:
        return [host for host in self.hosts if host.is_control_plane]

    @property
    def workers(self) -> list[Host]:
        return [host for host in self.hosts if not host.is_control_plane]

    def facts(self, hosts: Iterable[Host] = ()) -> Mapping[str, Facts]:
        """Return the facts of these hosts, or of all hosts.

        Raises one error for all silent hosts.
        """
        found, errors = self.ask(list(hosts) or self.hosts)
        refuse(errors)
        return found

    def fact(self, host: Host) -> Facts:
        return self.facts([host])[host.name]

    def ask(
        self, hosts: Sequence[Host]
    ) -> tuple[Mapping[str, Facts], Mapping[str, TrainyardError]]:
        """Return facts of hosts, and errors of the silent hosts, by name.

        Only hosts without cached facts are asked.
        """
        unknown = [host for host in hosts if host.name not in self._facts]
        found, errors = try_each(unknown, lambda host: facts.read(host.connection, now=time.time()))
        self._facts.update(found)
        known = {host.name: self._facts[host.name] for host in hosts if host.name not in errors}
        return known, errors

    def put_members_first(self) -> None:
        """Reorder the hosts: control planes that have joined others first."""
        facts = self.facts()

        def order(host: Host) -> bool:
            fact = facts[host.name]
            is_member = fact.has_joined and not fact.is_worker and not fact.is_half_joined
            return not (host.is_control_plane and is_member)

        self.hosts = sorted(self.hosts, key=order)

    def changed(self) -> None:
        """Drop the cached answers now, and later at each `look_again`."""
        self._changed = True
        self.look_again()

    def look_again(self) -> None:
        """Drop the cached answers, if this command has changed anything."""
        if self._changed:
            self._facts = {}
            self._nodes = None

    def nodes(self) -> Mapping[str, Object]:
        """Return Kubernetes' nodes by name; {} without an answer."""
        if self._nodes is None:
            self._nodes = self._ask_nodes()
        return self._nodes

    def members(self) -> Mapping[str, Member]:
        """Return dqlite's members by IP, as the first control plane says."""
        return {member.host: member for member in self.fact(self.first).members}

    def is_ready(self, host: Host) -> bool:
        node = self.nodes().get(self.fact(host).node)
        return node is not None and pods.is_ready(node)

    def not_ready(self, host: Host) -> Answer:
        """Say that a host's node is not Ready, and which image a pod awaits.

        `moved`, the number of pulled bytes, shows progress.
        """
        ran = self.first.microk8s(*_pods_on(self.fact(host).node), check=False)
        detail = "its node is not Ready"
        if ran.stdout.startswith("{"):
            waits = pulls.waited_for(json.loads(ran.stdout)["items"])
            if waits:
                detail = f"{detail}: {waits}"
        return no(detail, moved=self.pulled([host]))

    def pulled(self, hosts: Sequence[Host]) -> int:
        """Sum the bytes of images that these hosts have pulled."""
        return sum(fact.pulled for fact in self.facts(hosts).values())

    def lock(self) -> None:
        """Lock the lab on its first control plane until this command ends.

        Raises NotReadyError, which names the lock's owner, if another command
        holds the lock.
        """
        # The lock is lost when the host reboots.
        if self._lock is None or not self._lock.runs:
            self._lock = lock.take(self.first.connection, LOCK_FILE)
            self.changed()

    def _ask_nodes(self) -> dict[str, Object]:
        for host in self.control_planes:
            found, _ = self.ask([host])
            if host.name not in found:
                continue
            # A host that has not joined knows only its own node.
            if host is not self.first and not found[host.name].has_joined:
                continue
            ran = host.microk8s(
                "kubectl", "get", "nodes", "-o", "json", "--request-timeout=10s", check=False
            )
            if ran.code == 0 and ran.stdout.startswith("{"):
                return {node["metadata"]["name"]: node for node in json.loads(ran.stdout)["items"]}
        return {}


def _pods_on(node: str) -> list[str]:
    on = f"--field-selector=spec.nodeName={node}"
    return ["kubectl", "get", "pods", "--all-namespaces", "-o", "json", "--request-timeout=10s", on]


def each_step(
    lab: Lab,
    id: str,
    title: str,
    lacks: Callable[[Host, Facts], str],
    mend: Callable[[Host], object],
    *,
    deadline: float = 0.0,
    after: str | None = None,
) -> Step:
    """Return the step that calls `mend` in parallel on hosts with a problem.

    `lacks` returns the problem of a host, or "".
    """

    def lacking() -> dict[str, list[Host]]:
        facts = lab.facts()
        by_problem: dict[str, list[Host]] = {}
        for host in lab.hosts:
            problem = lacks(host, facts[host.name])
            if problem:
                by_problem.setdefault(problem, []).append(host)
        return by_problem

    def done() -> Answer:
        details = []
        for problem, hosts in lacking().items():
            details.append(f"{named([host.name for host in hosts])}: {problem}")
        if details:
            return no("; ".join(details))
        return YES

    def mend_all() -> None:
        to_mend: list[Host] = []
        for hosts in lacking().values():
            to_mend += hosts
        each(to_mend, mend)
        lab.changed()

    return Step(id, title, done, mend_all, deadline=deadline, every=1.0, after=after)


def of_section(section: Microk8sSection, environ: Mapping[str, str]) -> Lab:
    """Return the hosts that the section names, without connecting to them."""
    control_planes = section.control_planes
    desired = (*control_planes, *section.workers)
    found = ssh_hosts.of_addresses({host.ssh: host.ip for host in desired}, environ)
    made = []
    for index, host in enumerate(found):
        made.append(Host(**vars(host), is_control_plane=index < len(control_planes)))
    # snapd shows every channel with its risk level, so `1.34` would differ from `1.34/stable`.
    channel = section.channel
    if "/" not in channel:
        channel = f"{channel}/stable"
    return Lab(made, channel, mirrors=section.mirror)
