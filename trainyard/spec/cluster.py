"""The cluster file: what a cluster consists of, in words that mean the same on every backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from trainyard.spec import kuberay_rules
from trainyard.spec.docker import BuildSection, ComposeSection, Image, Registry
from trainyard.spec.existing import ExistingSection
from trainyard.spec.fields import (
    RAY_AUTH_VARIABLES,
    Complaint,
    Listed,
    Name,
    Section,
    Variables,
    complain,
    rule,
    same_names,
    setting,
    unusable,
)
from trainyard.spec.kubernetes import KuberaySection
from trainyard.spec.nodes import Head, NodeSpec, WorkerGroup

BUILT_BACKENDS = ("local", "compose", "kuberay", "existing")
PLANNED_BACKENDS = ("microk8s", "ec2")


def _is_built(backend: object) -> object:
    if backend in PLANNED_BACKENDS:
        raise ValueError(f"is not built yet (built: {', '.join(BUILT_BACKENDS)})")
    return backend


def _unusable(env: Mapping[str, str]) -> Iterator[Complaint]:
    """Complain about variables of Ray nodes that Trainyard sets itself."""
    return unusable(env, lambda name: "is set by Trainyard (see auth)" if name in RAY_AUTH_VARIABLES else None)


Backend = Annotated[Literal["local", "compose", "kuberay", "existing"], BeforeValidator(_is_built)]
Auth = Literal["token", "none"]
Groups = Annotated[Listed[WorkerGroup], rule(lambda groups: same_names([group.name for group in groups], "workers"))]
NodeVariables = Annotated[Variables, rule(_unusable)]


class LocalSection(Section):
    """Head and workers as Ray processes of this machine."""

    simulated_gpus: bool = setting(
        False, "true: nodes may declare GPUs that this machine does not have, to try a job's layout."
    )


class ClusterSpec(Section):
    """A cluster file, validated."""

    name: Name = Field(description="The cluster's name, of lower-case letters, digits and '-', at most 40 characters.")
    backend: Backend = Field(
        description="What makes the nodes: local (processes of this machine), compose (containers of a Docker host), "
        "kuberay (pods on Kubernetes) or existing (a Ray cluster of somebody else)."
    )
    image: Image | None = setting(None, "A directory of images/, or a full image reference.")
    head: Head = setting(Head(), "The head node.")
    workers: Groups = setting((), "Groups of worker nodes.")
    env: NodeVariables = setting({}, "Environment variables of every Ray node.")
    registry: Registry | None = setting(None, "Where images are kept.")
    build: BuildSection = setting(BuildSection(), "How images are built here.")
    local: LocalSection = setting(LocalSection(), "What only the `local` backend knows.")
    compose: ComposeSection = setting(ComposeSection(), "What only the `compose` backend knows.")
    kuberay: KuberaySection = setting(KuberaySection(), "What only the `kuberay` backend knows.", validate_default=True)
    existing: ExistingSection | None = setting(None, "What only the `existing` backend knows.", validate_default=True)
    auth: Auth = setting(
        "token",
        "Ray's dashboard runs any code sent to it: `none` is accepted for loopback only.",
        validate_default=True,
    )

    @property
    def docker_host(self) -> str | None:
        """The address of the Docker engine that runs the nodes; None: the one here, or none at all."""
        return self.compose.docker if self.backend == "compose" else None

    @field_validator("kuberay")
    @classmethod
    def _check_kuberay(cls, kuberay: KuberaySection, info: ValidationInfo) -> KuberaySection:
        complain(_kuberay_complaints(kuberay, info.data))
        return kuberay

    @field_validator("existing")
    @classmethod
    def _check_existing(cls, existing: ExistingSection | None, info: ValidationInfo) -> ExistingSection | None:
        if existing is None and info.data.get("backend") == "existing":
            complain([Complaint((), "is missing: the backend 'existing' needs the address of a Ray cluster")])
        return existing

    @field_validator("auth")
    @classmethod
    def _check_auth(cls, auth: Auth, info: ValidationInfo) -> Auth:
        backend, existing = info.data.get("backend"), info.data.get("existing")
        if backend == "kuberay" and auth == "none":
            reason = "every pod of the Kubernetes cluster reaches the dashboard"
            complain([Complaint((), f"must be 'token' with the backend kuberay: {reason}", auth)])
        if backend == "existing" and existing is not None:
            complain(existing.auth_complaints(auth))
        return auth

    def nodes(self) -> tuple[NodeSpec, ...]:
        """Return every node that `cluster.up` waits for, the head first."""
        head = NodeSpec("head", "head", self.head.cpus, self.head.memory, self.head.gpus)
        workers = [
            NodeSpec(f"{group.name}-{index}", group.name, group.cpus, group.memory, group.gpus)
            for group in self.workers
            for index in range(group.wanted)
        ]
        return (head, *workers)


def _kuberay_complaints(kuberay: KuberaySection, given: Mapping[str, Any]) -> Iterator[Complaint]:
    """Yield what is wrong with the section in this file; `given` are the fields before it that are right."""
    if "workers" in given:
        groups = ["head", *(group.name for group in given["workers"])]
        for name in kuberay.groups:
            if name not in groups:
                yield Complaint(("groups", name), f"is no group of this file (it has: {', '.join(groups)})")
    if given.get("backend") == "kuberay":
        yield from kuberay_rules.complaints(kuberay, given)
