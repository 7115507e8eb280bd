"""Sections of the cluster file for Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from trainyard import versions
from trainyard.spec.fields import (
    AbsolutePath,
    Complaint,
    Duration,
    Filled,
    Listed,
    OwnVariables,
    Section,
    Size,
    matching,
    rule,
    setting,
)

# Labels and annotations by which KubeRay and Trainyard find their pods, and which a file may not
# set.
_THEIR_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/created-by",
    "app.kubernetes.io/managed-by",
)
_THEIR_PREFIXES = ("ray.io", "io.trainyard")
# Every node has volumes of its own here, and one at `outputs`. SESSIONS has Ray's sessions and
# logs, and outlives the container.
SESSIONS = "/tmp/ray"  # noqa: S108
SHARED_MEMORY = "/dev/shm"  # noqa: S108
OUTPUTS = "/outputs"
# The home directory of a `run_as_user` that the image's /etc/passwd may not list.
HOME = "/home/trainyard"


def is_set_by_kuberay(key: str) -> bool:
    return key in _THEIR_LABELS or key.partition("/")[0] in _THEIR_PREFIXES


def _own_metadata(entries: Mapping[str, str]) -> Iterator[Complaint]:
    for key in entries:
        if is_set_by_kuberay(key):
            yield Complaint((key,), "is set by KubeRay or Trainyard")


# Names become part of API URLs, so they are checked here. Kubernetes checks labels and the rest.
ObjectName = Annotated[
    Filled,
    matching(
        r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?",
        "must be a name that Kubernetes accepts: lower-case letters, digits, '-' and '.'",
    ),
]
ServiceName = Annotated[
    Filled,
    matching(
        r"[a-z0-9-]+/[a-z0-9-]+", "must be NAMESPACE/NAME of a service, such as team/lab-head-svc"
    ),
]
Metadata = Annotated[dict[Filled, str], rule(_own_metadata)]
ChartValues = dict[str, JsonValue]


class Toleration(Section):
    """A taint of Kubernetes nodes that pods tolerate (core/v1 Toleration)."""

    key: Filled | None = setting(None, "The taint's key; left out: every taint.")
    operator: Literal["Exists", "Equal"] = setting("Exists", "Equal: `value` must be the taint's.")
    value: str | None = setting(None, "The taint's value, for `operator: Equal`.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = setting(
        None, "The taint's effect; left out: every effect."
    )


class PodPlacement(Section):
    """The pods' Kubernetes nodes, runtime class and priority."""

    node_selector: dict[Filled, str] = setting(
        {}, "Labels that a Kubernetes node must have, such as {pool: training}."
    )
    tolerations: Listed[Toleration] = setting(
        (), "Taints to tolerate; pods with GPUs tolerate nvidia.com/gpu anyway."
    )
    spread: Literal["preferred", "required", "none"] | None = setting(
        None,
        "How nodes are spread over hosts: preferred (default), required (never two nodes of the "
        "cluster on one host) or none.",
    )
    runtime_class: ObjectName | None = setting(
        None, "The runtime class of pods with GPUs, such as nvidia on MicroK8s."
    )
    priority_class: ObjectName | None = setting(None, "The priority class of the pods.")


class Requests(Section):
    """A node's requests to the scheduler, if less than the node's limits."""

    cpus: float | None = setting(
        None, "CPUs, such as 0.5; left out: what the node may use.", gt=0, le=1024
    )
    memory: Size | None = setting(None, "Memory; left out: what the node may use.")


class Autoscaler(Section):
    """Ray's autoscaler, a container in the head's pod if any group grows."""

    cpus: float = setting(0.5, "CPUs, as request and limit.", gt=0, le=1024)
    memory: Size = setting(512 * 1024**2, "Memory, as request and limit.")


class PodGroup(PodPlacement):
    """The pods of a group or of `head`: placement, requests and metadata."""

    requests: Requests = setting(
        Requests(), "Requests to the scheduler, if less than what these nodes may use."
    )
    labels: Metadata = setting({}, "Labels of these pods.")
    annotations: Metadata = setting({}, "Annotations of these pods.")
    env: OwnVariables = setting(
        {}, "Environment variables of these nodes, on top of the cluster's `env`."
    )


class EmptyDir(Section):
    """A node's own directory, empty at first (core/v1 EmptyDirVolumeSource)."""

    size: Size | None = setting(
        None,
        "The most that a node may write there before Kubernetes evicts it; left out: no limit of "
        "its own.",
    )
    memory: bool = setting(
        False, "true: the directory is in memory, and its content counts as the node's memory."
    )


class KubeVolume(Section):
    """A volume that every node of the cluster sees."""

    target: AbsolutePath = Field(description="Where the nodes see it.")
    claim: ObjectName | None = setting(None, "A PersistentVolumeClaim of the namespace.")
    config_map: ObjectName | None = setting(None, "A ConfigMap of the namespace.")
    secret: ObjectName | None = setting(None, "A Secret of the namespace.")
    host_path: AbsolutePath | None = setting(None, "A directory of every Kubernetes node.")
    empty_dir: EmptyDir | None = setting(
        None, "An empty directory of each node's own: {} or {size: 10GiB}."
    )
    read_only: bool = setting(False, "true: the nodes cannot change it.")

    def complaints(self) -> Iterator[Complaint]:
        sources = ("claim", "config_map", "secret", "host_path", "empty_dir")
        if sum(getattr(self, name) is not None for name in sources) != 1:
            yield Complaint((), f"needs exactly one of: {', '.join(sources)}")


class Storage(Section):
    """The storage of `outputs`: an existing claim, or one made by Trainyard.

    `cluster.down` removes only a claim that Trainyard made.
    """

    claim: ObjectName | None = setting(None, "A claim that exists already; it is never removed.")
    size: Size | None = setting(None, "The size of a claim to be made.")
    storage_class: ObjectName | None = setting(
        None, "The storage class of that claim; left out: the default one."
    )
    access: Literal["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"] = setting(
        "ReadWriteMany",
        "ReadWriteMany: nodes on all hosts share it. ReadWriteOnce: only nodes on one host can.",
    )

    def complaints(self) -> Iterator[Complaint]:
        if (self.claim is None) == (self.size is None):
            yield Complaint(
                (), "needs either `claim` (one that exists) or `size` (of one to be made)"
            )


class PodSecurity(Section):
    """The user and the rights of the nodes (core/v1 SecurityContext)."""

    hardened: bool = setting(
        True,
        "false: containers keep capabilities, may use setuid programs such as sudo, and have no "
        "seccomp profile.",
    )
    restricted: bool = setting(
        False,
        "true: what the Pod Security Standard `restricted` asks for: hardened, and never root.",
    )
    run_as_user: int | None = setting(None, "The user id; left out: the image's.", ge=0)
    run_as_group: int | None = setting(None, "The group id; left out: the image's.", ge=0)
    fs_group: int | None = setting(None, "The group that volumes belong to.", ge=0)

    def complaints(self) -> Iterator[Complaint]:
        if self.restricted and not self.hardened:
            yield Complaint(("hardened",), "must be true with `restricted: true`", self.hardened)


class Operator(Section):
    """The KubeRay operator: an existing one is used, else Helm installs one."""

    install: bool = setting(True, "false: never install it, nor its CRDs; an administrator does.")
    chart: Filled = setting(
        "kuberay-operator",
        "The chart's name in `repository`, or a directory or .tgz with it "
        "(./charts/kuberay-operator).",
    )
    repository: Filled | None = setting(
        "https://ray-project.github.io/kuberay-helm/",
        "Where the chart is: https://..., or oci://... of a registry.",
    )
    version: Filled = setting(versions.KUBERAY, "The chart's version.")
    namespace: ObjectName = setting("kuberay-system", "Where the operator is installed.")
    release: ObjectName = setting("kuberay-operator", "The name of the Helm release.")
    values: ChartValues = setting({}, "Values of the chart, as in its values.yaml.")


class KuberaySection(PodPlacement):
    """A RayCluster on Kubernetes, made by the KubeRay operator."""

    kubeconfig: Filled | None = setting(
        None, "The kubeconfig file; left out: $KUBECONFIG, else ~/.kube/config."
    )
    context: Filled | None = setting(
        None, "A context of the kubeconfig; left out: its current one."
    )
    namespace: ObjectName = setting("trainyard", "Where the cluster lives; made if it is missing.")
    operator: Operator = setting(Operator(), "The KubeRay operator.")
    with_gpus: PodPlacement = setting(
        PodPlacement(), "Placement of nodes that have GPUs, on top of that for all nodes."
    )
    without_gpus: PodPlacement = setting(
        PodPlacement(), "Placement of nodes without GPUs, on top of that for all nodes."
    )
    groups: dict[Filled, PodGroup] = setting(
        {}, "Settings of one group, or of `head`, on top of those for all nodes."
    )
    autoscaler: Autoscaler = setting(
        Autoscaler(), "The autoscaler's own container, where a group grows."
    )
    gpu_resource: Filled = setting("nvidia.com/gpu", "What a GPU is called on the nodes.")
    simulated_gpus: bool = setting(
        False,
        "true: GPUs are only declared to Ray, and Kubernetes is asked for none, to try a job's "
        "layout.",
    )
    requests: Requests = setting(
        Requests(), "Requests to the scheduler, if less than what nodes may use."
    )
    shm_size: Size | None = setting(
        None,
        "The shared memory, which holds Ray's object store, of each node that has more memory "
        "than this size. Left out: as much as the store needs.",
    )
    volumes: Listed[KubeVolume] = setting((), "Volumes that every node sees.")
    outputs: AbsolutePath = setting(OUTPUTS, "Where every node sees the storage for outputs.")
    storage: Storage | None = setting(
        None, "The storage behind `outputs`; left out: an emptyDir of each node."
    )
    security: PodSecurity = setting(PodSecurity(), "The user and the rights of the nodes.")
    service_account: ObjectName | None = setting(None, "The service account of the nodes.")
    pull_secrets: Listed[ObjectName] = setting(
        (),
        "Secrets of the namespace with which images are pulled, in addition to the one that is "
        "made from `registry`.",
    )
    labels: Metadata = setting(
        {},
        "Labels of the RayCluster and all pods, such as a cost centre or a queue.",
    )
    annotations: Metadata = setting({}, "Annotations of all pods.")
    disruption_budget: bool = setting(
        True,
        "false: the head's host may be drained while the cluster lives, which ends every run.",
    )
    network_policy: bool = setting(
        False,
        "true: only the cluster's own pods reach its nodes, if the network plugin enforces "
        "policies.",
    )
    wait_for_machines: Duration | None = setting(
        None,
        "How long pods may wait for room while Kubernetes adds machines by itself, such as 10m.",
    )

    def complaints(self) -> Iterator[Complaint]:
        """Yield volumes at the places of those that every node has."""
        outputs = str(PurePosixPath(self.outputs))
        places = [SESSIONS, SHARED_MEMORY, outputs]
        if self.security.run_as_user:
            places.append(HOME)

        message = f"must be none of {', '.join(places)}: every node has a volume there already"
        for index, volume in enumerate(self.volumes):
            target = str(PurePosixPath(volume.target))
            if target not in places:
                continue
            suggestion = ""
            if target == outputs:
                suggestion = "; a claim for outputs is kuberay.storage.claim"
            path = ("volumes", index, "target")
            yield Complaint(path, message, volume.target, suggestion)

    def pods(self, group: str, *, gpus: int) -> PodGroup:
        """Merge the settings of a group's pods.

        The group's own win over those for nodes with (or without) GPUs, and
        these over those for all nodes. Labels, annotations, selectors and
        tolerations are combined.
        """
        own = self.groups.get(group, PodGroup())
        alike = self.with_gpus if gpus else self.without_gpus
        requests = Requests(
            cpus=own.requests.cpus or self.requests.cpus,
            memory=own.requests.memory or self.requests.memory,
        )
        return PodGroup(
            requests=requests,
            labels={**self.labels, **own.labels},
            annotations={**self.annotations, **own.annotations},
            env=own.env,
            node_selector={**self.node_selector, **alike.node_selector, **own.node_selector},
            tolerations=(*self.tolerations, *alike.tolerations, *own.tolerations),
            spread=own.spread or alike.spread or self.spread or "preferred",
            runtime_class=own.runtime_class or alike.runtime_class or self.runtime_class,
            priority_class=own.priority_class or alike.priority_class or self.priority_class,
        )
