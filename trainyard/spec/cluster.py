"""The cluster file: nodes, shared settings, and a section per backend."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from trainyard.spec.docker import BuildSection, ComposeSection, Image, Registry, is_host_and_port
from trainyard.spec.ec2 import Ec2Section
from trainyard.spec.fields import (
    Complaint,
    Duration,
    Filled,
    Name,
    OwnVariables,
    Section,
    VariableName,
    setting,
)
from trainyard.spec.groups import Groups, Head, NodeSpec, WorkerGroup
from trainyard.spec.kubernetes import KuberaySection, ObjectName, PodGroup, ServiceName
from trainyard.spec.microk8s import Microk8sSection
from trainyard.spec.yaml_source import KeyPath

Backend = Literal["local", "compose", "kuberay", "microk8s", "ec2", "existing"]
# Backends whose dashboard other machines can reach, and which machines.
OPEN_TO = {
    "kuberay": "every pod of the Kubernetes cluster",
    "ec2": "every instance of the security group",
}


class LeashSection(Section):
    """Timers that end the cluster, even while the user's machines are off."""

    idle: Duration | None = setting(
        None, "The cluster ends after this time without a running or waiting job."
    )
    deadline: Duration | None = setting(
        None, "The cluster ends this long after `cluster.up` made it, even if jobs run."
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.idle is None and self.deadline is None:
            yield Complaint((), "needs idle, deadline or both, such as {idle: 2h, deadline: 12h}")


class LocalSection(Section):
    """Head and workers as Ray processes of this machine."""

    simulated_gpus: bool = setting(
        False,
        "true: nodes may declare GPUs that this machine does not have, to try a job's layout.",
    )


def _check_dashboard_address(address: str) -> str:
    scheme, _, host = address.rstrip("/").partition("://")
    if scheme not in ("http", "https") or not is_host_and_port(host):
        raise ValueError(
            "must be the dashboard's address such as http://127.0.0.1:8265 (no user, path or query)"
        )
    return address


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


DashboardAddress = Annotated[Filled, AfterValidator(_check_dashboard_address)]


class ExistingSection(Section):
    """A Ray cluster that Trainyard did not make."""

    address: DashboardAddress | None = setting(
        None, "The dashboard's address, such as http://127.0.0.1:8265."
    )
    service: ServiceName | None = setting(
        None, "NAMESPACE/NAME of its service on Kubernetes; the port-forward is made for you."
    )
    port: int = setting(
        8265, "The port of `service` on which the dashboard answers.", ge=1, le=65535
    )
    kubeconfig: Filled | None = setting(
        None, "The kubeconfig file for `service`; left out: $KUBECONFIG, else ~/.kube/config."
    )
    context: Filled | None = setting(
        None, "A context of the kubeconfig; left out: its current one."
    )
    token_env: VariableName | None = setting(None, "The environment variable that holds the token.")
    token_file: Filled | None = setting(None, "The file that holds the token.")
    token_secret: ObjectName | None = setting(
        None, "The Secret in the namespace of `service` whose key auth_token holds the token."
    )

    def complaints(self) -> Iterator[Complaint]:
        """Require either address or service, and at most one token."""
        if bool(self.address) == bool(self.service):
            yield Complaint(
                (),
                "needs either address (http://HOST:8265) or service (NAMESPACE/NAME on Kubernetes)",
            )
        if len(self._tokens()) > 1:
            yield Complaint((), f"has {' and '.join(self._tokens())}: give one")
        if self.token_secret and not self.service:
            yield Complaint(
                ("token_secret",), "has an effect only with `service`", self.token_secret
            )

    def auth_complaints(self, auth: str) -> Iterator[Complaint]:
        """Check `auth` against token and address.

        `token` needs a token. `none` allows no token, and only an address on
        loopback. A port-forward on loopback reaches a `service`.
        """
        if auth == "token" and not self._tokens():
            message = (
                "needs token_env, token_file or, with service, token_secret (`auth: none` "
                "if there is none)"
            )
            yield Complaint(("existing",), message)
        elif auth == "none" and self.address is not None and not _is_loopback(self.address):
            message = (
                f"must be 'token', because existing.address ({self.address}) is not on loopback"
            )
            yield Complaint(("auth",), message, auth)
        elif auth == "none" and self._tokens():
            yield Complaint(("auth",), "must be 'token' where existing names a token", auth)

    def _tokens(self) -> list[str]:
        return [name for name in ("token_env", "token_file", "token_secret") if getattr(self, name)]


class ClusterSpec(Section):
    """A cluster file, validated."""

    name: Name = Field(
        description="The cluster's name, of lower-case letters, digits and '-', at most 40 "
        "characters."
    )
    backend: Backend = Field(
        description="What makes the nodes: local (processes of this machine), compose "
        "(containers of a Docker host), kuberay (pods on Kubernetes), microk8s (hosts by SSH), "
        "ec2 (instances of AWS) or existing (a Ray cluster that Trainyard did not make)."
    )
    image: Image | None = setting(None, "A directory of images/, or a full image reference.")
    head: Head = setting(Head(), "The head node.")
    workers: Groups = setting((), "Groups of worker nodes.")
    env: OwnVariables = setting({}, "Environment variables of every Ray node.")
    leash: LeashSection | None = setting(None, "When the cluster ends itself; left out: never.")
    registry: Registry | None = setting(None, "Where images are kept.")
    build: BuildSection = setting(BuildSection(), "How images are built here.")
    local: LocalSection = setting(LocalSection(), "Settings of the `local` backend.")
    compose: ComposeSection = setting(ComposeSection(), "Settings of the `compose` backend.")
    kuberay: KuberaySection = setting(KuberaySection(), "Settings of the `kuberay` backend.")
    microk8s: Microk8sSection | None = setting(
        None, "Settings of the `microk8s` backend, such as its hosts."
    )
    ec2: Ec2Section = setting(Ec2Section(), "Settings of the `ec2` backend.")
    existing: ExistingSection | None = setting(None, "Settings of the `existing` backend.")
    auth: Literal["token", "none"] = setting(
        "token", "Ray's dashboard runs any code sent to it: `none` is accepted for loopback only."
    )

    @property
    def docker_host(self) -> str | None:
        """Return the Docker host; None for the engine that `docker` uses."""
        if self.backend == "compose":
            return self.compose.docker
        return None

    def complaints(self) -> Iterator[Complaint]:
        """Check the sections against each other."""
        if self.backend in OPEN_TO and self.auth == "none":
            reason = f"{OPEN_TO[self.backend]} reaches the dashboard"
            yield Complaint(
                ("auth",), f"must be 'token' with the backend {self.backend}: {reason}", self.auth
            )

        if self.backend == "existing" and self.existing is None:
            yield Complaint(
                ("existing",),
                "is missing: the backend 'existing' needs the address of a Ray cluster",
            )
        elif self.backend == "microk8s" and self.microk8s is None:
            yield Complaint(("microk8s",), "is missing: the backend 'microk8s' needs the hosts")
        elif self.backend == "existing" and self.existing is not None:
            yield from self.existing.auth_complaints(self.auth)

        yield from self._half_in_containers()
        yield from self._of_existing_nodes()
        yield from self._requests_above_limits()
        yield from self._unknown_groups("kuberay", self.kuberay.groups)
        yield from self._unknown_groups("ec2", self.ec2.groups)

    def nodes(self) -> tuple[NodeSpec, ...]:
        """Return the head, and each group's least number of workers."""
        workers = []
        for group in self.workers:
            for index in range(group.least):
                workers.append(NodeSpec.of(f"{group.name}-{index}", group.name, group))
        return (NodeSpec.of("head", "head", self.head), *workers)

    def groups(self) -> dict[str, Head | WorkerGroup]:
        return {"head": self.head, **{group.name: group for group in self.workers}}

    def image_of(self, group: str) -> str | None:
        return self.groups()[group].image or self.image

    def with_image(self, name: str) -> ClusterSpec:
        head = self.head.model_copy(update={"image": None})
        workers = tuple(group.model_copy(update={"image": None}) for group in self.workers)
        return self.model_copy(update={"image": name, "head": head, "workers": workers})

    def _unknown_groups(self, section: str, names: Iterable[str]) -> Iterator[Complaint]:
        known = self.groups()
        for name in names:
            if name not in known:
                message = f"is no group of this file (it has: {', '.join(known)})"
                yield Complaint((section, "groups", name), message)

    def _half_in_containers(self) -> Iterator[Complaint]:
        """Require on EC2 that all groups have an image, or none.

        Ray's autoscaler runs either all nodes in containers, or none.
        """
        groups = self.groups()
        lacking = [name for name in groups if not self.image_of(name)]
        if self.backend == "ec2" and 0 < len(lacking) < len(groups):
            yield Complaint(
                ("image",),
                "is missing: on ec2 all nodes run an image or none does, and these do not: "
                f"{', '.join(lacking)}",
            )

    def _of_existing_nodes(self) -> Iterator[Complaint]:
        """Reject settings of nodes that Trainyard does not make."""
        if self.backend != "existing":
            return

        places: list[tuple[KeyPath, Head | WorkerGroup]] = [(("head",), self.head)]
        places += [(("workers", index), group) for index, group in enumerate(self.workers)]
        message = "has no effect with the backend existing: its nodes are made outside Trainyard"
        for path, group in places:
            for name in ("image", "resources", "labels", "ray_start"):
                if getattr(group, name):
                    yield Complaint((*path, name), message)
        if self.env:
            yield Complaint(("env",), f"{message}; `env` of a job sets variables of its tasks")

    def _requests_above_limits(self) -> Iterator[Complaint]:
        """Reject requests to Kubernetes above a node's limits."""
        for name, group in self.groups().items():
            requests = self.kuberay.groups.get(name, PodGroup()).requests
            for key in ("cpus", "memory"):
                asked = getattr(requests, key)
                most = getattr(group, key)
                # `cpus: 0` keeps tasks off a node; Ray's own CPU limit then equals the request.
                if key == "cpus" and most == 0:
                    continue
                if asked is not None and (most is None or asked > most):
                    message = f"must be at most what the node may use, which is {key} of {name}"
                    yield Complaint(("kuberay", "groups", name, "requests", key), message)


@dataclass(frozen=True)
class LoadedCluster:
    """A cluster file with flags and defaults applied, and its path."""

    spec: ClusterSpec
    source: Path
