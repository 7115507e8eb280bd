"""What only Kubernetes knows: sections of the cluster file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from trainyard import versions
from trainyard.spec import kubernetes_rules as rules
from trainyard.spec.fields import Duration, Filled, Listed, Section, Size
from trainyard.spec.hosts import AbsolutePath

ObjectName = Annotated[Filled, AfterValidator(rules.check_object_name)]
NamespaceName = Annotated[Filled, AfterValidator(rules.check_namespace_name)]
LabelKey = Annotated[Filled, AfterValidator(rules.check_label_key)]
LabelValue = Annotated[str, AfterValidator(rules.check_label_value)]
ServiceName = Annotated[Filled, AfterValidator(rules.check_service)]
ResourceName = Annotated[Filled, AfterValidator(rules.check_label_key)]
Cores = Annotated[float, Field(gt=0, le=1024)]


class Toleration(Section):
    """A taint of Kubernetes nodes that pods put up with (core/v1 Toleration)."""

    key: LabelKey | None = Field(default=None, description="The taint's key; left out: every taint.")
    operator: Literal["Exists", "Equal"] = Field(default="Exists", description="Equal: `value` must be the taint's.")
    value: LabelValue | None = Field(default=None, description="The taint's value, for `operator: Equal`.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect; left out: every effect."
    )

    @model_validator(mode="after")
    def _check(self) -> Toleration:
        rules.check_toleration(self.key, self.operator, self.value)
        return self


class PodPlacement(Section):
    """Where pods may run, and how."""

    node_selector: dict[LabelKey, LabelValue] = Field(
        default={}, description="Labels that a Kubernetes node must have, such as {pool: training}."
    )
    tolerations: Listed[Toleration] = Field(
        default=(), description="Taints to put up with; pods with GPUs tolerate nvidia.com/gpu anyway."
    )
    spread: Literal["preferred", "required", "none"] | None = Field(
        default=None,
        description="Over hosts: preferred (default), required (never two nodes of the cluster on one host) or none.",
    )
    runtime_class: ObjectName | None = Field(
        default=None, description="The runtime class of pods with GPUs, such as nvidia on MicroK8s."
    )
    priority_class: ObjectName | None = Field(default=None, description="The priority class of the pods.")


class KubeVolume(Section):
    """A volume that every node of the cluster sees."""

    target: AbsolutePath = Field(description="Where the nodes see it.")
    claim: ObjectName | None = Field(default=None, description="A PersistentVolumeClaim of the namespace.")
    config_map: ObjectName | None = Field(default=None, description="A ConfigMap of the namespace.")
    secret: ObjectName | None = Field(default=None, description="A Secret of the namespace.")
    host_path: AbsolutePath | None = Field(default=None, description="A directory of every Kubernetes node.")
    read_only: bool = Field(default=False, description="true: the nodes cannot change it.")

    @model_validator(mode="after")
    def _check(self) -> KubeVolume:
        rules.check_one_source(
            {
                "claim": self.claim,
                "config_map": self.config_map,
                "secret": self.secret,
                "host_path": self.host_path,
            }
        )
        return self


class Storage(Section):
    """What is behind `outputs`: a claim of somebody else, or one that we make and `cluster.down` removes."""

    claim: ObjectName | None = Field(default=None, description="A claim that is there already; it is never removed.")
    size: Size | None = Field(default=None, description="The size of a claim to be made.")
    storage_class: ObjectName | None = Field(
        default=None, description="The storage class of that claim; left out: the default one."
    )
    access: Literal["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"] = Field(
        default="ReadWriteMany",
        description="ReadWriteMany: nodes on all hosts share it. ReadWriteOnce: only nodes on one host can.",
    )

    @model_validator(mode="after")
    def _check(self) -> Storage:
        rules.check_storage(self.claim, self.size, self.storage_class)
        return self


class PodSecurity(Section):
    """As whom the nodes run (core/v1 SecurityContext)."""

    restricted: bool = Field(
        default=False,
        description="true: what the Pod Security Standard `restricted` asks for: not root, no capabilities.",
    )
    run_as_user: int | None = Field(default=None, ge=0, description="The user id; left out: the image's.")
    run_as_group: int | None = Field(default=None, ge=0, description="The group id; left out: the image's.")
    fs_group: int | None = Field(default=None, ge=0, description="The group that volumes belong to.")

    @model_validator(mode="after")
    def _check(self) -> PodSecurity:
        rules.check_restricted(self.run_as_user, restricted=self.restricted)
        return self


class Requests(Section):
    """What a node asks the scheduler for, where that should be less than what it may use."""

    cpus: Cores | None = Field(default=None, description="CPUs, such as 0.5; left out: what the node may use.")
    memory: Size | None = Field(default=None, description="Memory; left out: what the node may use.")


class Operator(Section):
    """The KubeRay operator: installed by Helm where none is, used where one is."""

    install: bool = Field(default=True, description="false: never install it, nor its CRDs; somebody else does.")
    chart: Filled = Field(
        default="kuberay-operator",
        description="The chart's name in `repository`, or a directory or .tgz with it (./charts/kuberay-operator).",
    )
    repository: Filled | None = Field(
        default="https://ray-project.github.io/kuberay-helm/",
        description="Where the chart is: https://..., or oci://... of a registry.",
    )
    version: Filled = Field(default=versions.KUBERAY, description="The chart's version.")
    namespace: NamespaceName = Field(default="kuberay-system", description="Where the operator is installed.")
    release: ObjectName = Field(default="kuberay-operator", description="The name of the Helm release.")
    values: dict[str, JsonValue] = Field(default={}, description="Values of the chart, as in its values.yaml.")

    @field_validator("values")
    @classmethod
    def _check_shown(cls, values: dict[str, JsonValue]) -> dict[str, JsonValue]:
        rules.check_shown(values)
        return values


class KuberaySection(PodPlacement):
    """A RayCluster on Kubernetes, made by the KubeRay operator."""

    kubeconfig: Filled | None = Field(
        default=None, description="The kubeconfig file; left out: $KUBECONFIG, else ~/.kube/config."
    )
    context: Filled | None = Field(default=None, description="A context of the kubeconfig; left out: its current one.")
    namespace: NamespaceName = Field(default="trainyard", description="Where the cluster lives; made if it is missing.")
    operator: Operator = Field(default=Operator(), description="The KubeRay operator.")
    groups: dict[Filled, PodPlacement] = Field(
        default={}, description="Placement of one group, or of `head`, on top of what is said for all."
    )
    gpu_resource: ResourceName = Field(default="nvidia.com/gpu", description="What a GPU is called on the nodes.")
    simulated_gpus: bool = Field(
        default=False, description="true: GPUs are numbers only, Kubernetes is not asked for any; to try a layout."
    )
    requests: Requests = Field(default=Requests(), description="What is requested, if less than what is allowed.")
    shm_size: Size | None = Field(
        default=None,
        description="The shared memory of each node that has more memory than that; it holds Ray's object store. "
        "Left out: what it needs.",
    )
    volumes: Listed[KubeVolume] = Field(default=(), description="Volumes that every node sees.")
    outputs: AbsolutePath = Field(default="/outputs", description="Where every node sees the storage for outputs.")
    storage: Storage | None = Field(
        default=None, description="What is behind `outputs`; left out: an emptyDir of each node."
    )
    security: PodSecurity = Field(default=PodSecurity(), description="As whom the nodes run.")
    service_account: ObjectName | None = Field(default=None, description="The service account of the nodes.")
    pull_secrets: Listed[ObjectName] = Field(
        default=(), description="Secrets of the namespace to pull images with, besides the one made from `registry`."
    )
    labels: dict[LabelKey, LabelValue] = Field(default={}, description="Labels of all pods, such as a cost centre.")
    annotations: dict[LabelKey, str] = Field(default={}, description="Annotations of all pods.")
    wait_for_machines: Duration | None = Field(
        default=None,
        description="How long pods may find no room, where Kubernetes adds machines by itself, such as 10m.",
    )

    @field_validator("labels", "annotations")
    @classmethod
    def _check_metadata(cls, entries: dict[str, str]) -> dict[str, str]:
        rules.check_own_metadata(entries)
        return entries

    @model_validator(mode="after")
    def _check(self) -> KuberaySection:
        rules.check_targets([volume.target for volume in self.volumes], self.outputs)
        rules.check_host_paths([volume.host_path for volume in self.volumes], restricted=self.security.restricted)
        return self

    def placement(self, group: str) -> PodPlacement:
        """Return where the pods of a group may run: what is said for it, on top of what is said for all."""
        own = self.groups.get(group, PodPlacement())
        return PodPlacement(
            node_selector={**self.node_selector, **own.node_selector},
            tolerations=(*self.tolerations, *own.tolerations),
            spread=own.spread or self.spread or "preferred",
            runtime_class=own.runtime_class or self.runtime_class,
            priority_class=own.priority_class or self.priority_class,
        )
