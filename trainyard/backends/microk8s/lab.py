"""The hosts of a lab: who they are, and what they were when last asked."""

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

# Not every sshd has /snap/bin on its PATH, and not every sudo keeps it.
MICROK8S = "/snap/bin/microk8s"
API_PORT = 16443
LOCK_FILE = "/run/trainyard.lock"


@dataclass(frozen=True)
class Host(ssh_hosts.Host):
    """A host of a lab, and which part the file gives it."""

    is_control_plane: bool

    @property
    def server(self) -> str:
        return f"https://{self.ip}:{API_PORT}"

    def microk8s(self, *words: str, seconds: float = 60.0, check: bool = True) -> Ran:
        """Run `microk8s WORDS` as root. That it exits 0 proves nothing; with `check`, another code
        is an error.
        """
        return self.root(MICROK8S, *words, seconds=seconds, check=check)


@dataclass
class Lab:
    """The hosts that a cluster file names, the first control plane first, and what is installed on
    them.

    MicroK8s is that of `channel`, or of the files `snaps`, of which the last is its own; `images`
    are files, `mirrors` URLs by registry. What the hosts are is asked once, and after something was
    changed again for each question of a step.
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
        """Return the control plane that is asked, and by which the others join."""
        return self.control_planes[0]

    @property
    def release(self) -> str:
        """Return which MicroK8s is installed: its channel, or its file."""
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
        """Return the facts of some hosts, of all by default. Raises the error that names every host
        without.
        """
        found, errors = self.ask(list(hosts) or self.hosts)
        refuse(errors)
        return found

    def fact(self, host: Host) -> Facts:
        return self.facts([host])[host.name]

    def ask(
        self, hosts: Sequence[Host]
    ) -> tuple[Mapping[str, Facts], Mapping[str, TrainyardError]]:
        """Ask hosts for their facts, once; return them, and the errors of those that gave none."""
        unknown = [host for host in hosts if host.name not in self._facts]
        found, errors = try_each(unknown, lambda host: facts.read(host.connection, now=time.time()))
        self._facts.update(found)
        return {
            host.name: self._facts[host.name] for host in hosts if host.name not in errors
        }, errors

    def put_members_first(self) -> None:
        """Let the first control plane be one that others have joined, wherever the file has it."""
        whole = {name: fact for name, fact in self.facts().items() if not fact.is_half_joined}
        joined = {name for name, fact in whole.items() if fact.has_joined and not fact.is_worker}
        self.hosts = sorted(
            self.hosts, key=lambda host: not (host.is_control_plane and host.name in joined)
        )

    def changed(self) -> None:
        """Note that something was changed: what was answered before does not count, and changes
        from now on.
        """
        self._changed = True
        self.look_again()

    def look_again(self) -> None:
        """Forget what was answered, unless nothing was changed since."""
        if self._changed:
            self._facts = {}
            self._nodes = None

    def nodes(self) -> Mapping[str, Object]:
        """Return Kubernetes' nodes by name, as the first control plane that answers knows them; {}
        if none does.
        """
        if self._nodes is None:
            self._nodes = self._ask_nodes()
        return self._nodes

    def members(self) -> Mapping[str, Member]:
        """Return the members of dqlite by the addresses of their hosts."""
        return {member.host: member for member in self.fact(self.first).members}

    def is_ready(self, host: Host) -> bool:
        node = self.nodes().get(self.fact(host).node)
        return node is not None and pods.is_ready(node)

    def not_ready(self, host: Host) -> Answer:
        """Say that a host's node is not Ready, which image it waits for, and how much came to it so
        far.
        """
        found = self.first.microk8s(*_pods_on(self.fact(host).node), check=False)
        if found.stdout.startswith("{"):
            waits = pulls.waited_for(json.loads(found.stdout)["items"])
        else:
            waits = ""
        return no(f"its node is not Ready{waits and f': {waits}'}", moved=self.pulled([host]))

    def pulled(self, hosts: Sequence[Host]) -> int:
        """Return how many bytes of images came to these hosts so far."""
        return sum(fact.pulled for fact in self.facts(hosts).values())

    def lock(self) -> None:
        """Be the only command that changes the hosts, to its end. Raises NotReadyError that names
        another one.
        """
        # A host that was rebooted meanwhile has forgotten it.
        if self._lock is None or not self._lock.runs:
            self._lock = lock.take(self.first.connection, LOCK_FILE)
            self.changed()

    def _ask_nodes(self) -> dict[str, Object]:
        for host in self.control_planes:
            found, _ = self.ask([host])
            # One that runs alone would answer with itself.
            if host.name not in found or (
                host is not self.first and not found[host.name].has_joined
            ):
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
    """Return the step after which no host lacks anything: `lacks` says what, "" where nothing; it
    is mended there.
    """

    def lacking() -> list[tuple[str, Host]]:
        observed = lab.facts()
        return [(what, host) for host in lab.hosts if (what := lacks(host, observed[host.name]))]

    def done() -> Answer:
        found = lacking()
        by_what = {
            what: named([host.name for other, host in found if other == what]) for what, _ in found
        }
        if found:
            return no("; ".join(f"{hosts}: {what}" for what, hosts in by_what.items()))
        return YES

    def mend_all() -> None:
        each([host for _, host in lacking()], mend)
        lab.changed()

    return Step(id, title, done, mend_all, deadline=deadline, every=1.0, after=after)


def of_section(section: Microk8sSection, environ: Mapping[str, str]) -> Lab:
    """Return the hosts of a cluster file; nothing is asked of them yet, and no file is looked
    for.
    """
    control_planes = section.control_planes
    desired = (*control_planes, *section.workers)
    found = ssh_hosts.of_addresses({host.ssh: host.ip for host in desired}, environ)
    made = []
    for index, host in enumerate(found):
        made.append(Host(**vars(host), is_control_plane=index < len(control_planes)))
    # snapd calls every channel by its full name.
    if "/" in section.channel:
        channel = section.channel
    else:
        channel = f"{section.channel}/stable"
    return Lab(made, channel, mirrors=section.mirror)
