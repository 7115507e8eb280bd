"""From a cluster file to the objects that Kubernetes gets; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard import paths, render, versions
from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.documents import pod_template
from trainyard.backends.kuberay.documents.nodes import HEAD, Node, nodes
from trainyard.backends.kuberay.documents.pod_parts import container_security, home, quantity
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.fields import HIDDEN, SECRET_NAME
from trainyard.spec.nodes import WorkerGroup

# How long a node of a growing group may be idle, unless the file says otherwise (Ray's own default).
IDLE_SECONDS = 60
# Ray's autoscaler beside the head.
AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}


@dataclass(frozen=True)
class Wish:
    """All that the objects are made of. `image` is an exact reference, `pull_secrets` all Secrets to pull it with.

    `simulated`: GPUs are numbers of Ray only, Kubernetes is not asked for any.
    """

    spec: ClusterSpec
    image: str
    simulated: bool = False
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Templates:
    """The texts of the templates in kuberay/."""

    namespace: str
    claim: str
    ray_cluster: str
    pod: str


@dataclass(frozen=True)
class Documents:
    """What Kubernetes gets. `claim` is None where the cluster file asks for none to be made."""

    namespace: Object
    claim: Object | None
    ray_cluster: Object

    def listed(self) -> list[Object]:
        """Return them in the order in which they are made."""
        return [self.namespace, *([self.claim] if self.claim else []), self.ray_cluster]


def printable(found: Documents) -> list[Object]:
    """Return the objects as they may be shown: variables that are called like secrets are hidden."""
    shown: list[Object] = [_hidden(one) for one in found.listed()]
    return shown


def shipped_templates() -> Templates:
    """Return the templates that we ship."""
    directory = paths.shipped("kuberay")
    return Templates(
        namespace=render.template(directory, "namespace.yaml.j2"),
        claim=render.template(directory, "claim.yaml.j2"),
        ray_cluster=render.template(directory, "raycluster.yaml.j2"),
        pod=render.template(directory, "pod.yaml.j2"),
    )


def documents(wish: Wish, templates: Templates) -> Documents:
    """Render every object of a cluster but its Secrets."""
    namespace = {"namespace": wish.spec.kuberay.namespace, "labels": {names.MADE_BY: names.US}}
    claim = _claim(wish.spec)
    return Documents(
        namespace=_rendered(templates.namespace, namespace),
        claim=_rendered(templates.claim, claim) if claim else None,
        ray_cluster=_rendered(templates.ray_cluster, _ray_cluster(wish, templates.pod)),
    )


def _rendered(template: str, values: Mapping[str, Any]) -> Object:
    found: Object = _without_nulls(render.parse(render.render(template, values)))
    return found


def _without_nulls(value: Any) -> Any:
    """Return a document without the keys whose value is null: what was left out in the template."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _hidden(value: Any) -> Any:
    if isinstance(value, list):
        return [_hidden(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"name", "value"} and SECRET_NAME.search(value["name"]):
        return {**value, "value": HIDDEN}
    return {key: _hidden(one) for key, one in value.items()}


def _claim(spec: ClusterSpec) -> dict[str, Any] | None:
    storage = spec.kuberay.storage
    if storage is None or storage.size is None:
        return None
    return {
        "name": names.claim(spec.name),
        "namespace": spec.kuberay.namespace,
        "labels": names.labels(spec.name),
        "access_modes": [storage.access],
        "storage_class": storage.storage_class,
        "size": quantity(storage.size),
    }


def _ray_cluster(wish: Wish, pod: str) -> dict[str, Any]:
    spec = wish.spec
    head, *workers = nodes(spec)
    grows = any(group.grows for group in spec.workers)
    return {
        "name": spec.name,
        "namespace": spec.kuberay.namespace,
        "labels": names.labels(spec.name),
        "annotations": {names.IMAGE: wish.image, names.SIMULATED: "true" if wish.simulated else "false"},
        "ray_version": versions.RAY,
        "grows": grows,
        "autoscaler": _autoscaler(spec) if grows else None,
        "head": _group(wish, head, pod, with_autoscaler=grows),
        "workers": [
            {**_size(group), **_group(wish, node, pod)} for group, node in zip(spec.workers, workers, strict=True)
        ],
    }


def _autoscaler(spec: ClusterSpec) -> dict[str, Any]:
    variables = home(spec.kuberay.security, directory=pod_template.SESSIONS)
    return {
        "version": "v2",
        "idleTimeoutSeconds": IDLE_SECONDS,
        "upscalingMode": "Default",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": AUTOSCALER, "limits": AUTOSCALER},
        "securityContext": container_security(spec.kuberay.security),
        "env": [{"name": name, "value": value} for name, value in variables.items()] or None,
    }


def _size(group: WorkerGroup) -> dict[str, Any]:
    """Return how many nodes a group has. Of one that grows, Ray's autoscaler says how many there are in between."""
    idle = math.ceil(group.idle_timeout) if group.idle_timeout is not None else None
    return {
        "replicas": None if group.grows else group.wanted,
        "least": group.wanted,
        "most": group.most,
        "idle_seconds": idle,
    }


def _group(wish: Wish, node: Node, pod: str, *, with_autoscaler: bool = False) -> dict[str, Any]:
    values = pod_template.values(
        wish.spec,
        node,
        image=wish.image,
        pull_secrets=wish.pull_secrets,
        simulated=wish.simulated,
        with_autoscaler=with_autoscaler,
    )
    return {
        "name": node.group,
        # Ray's own label of a node's group would be `headgroup` on the head; the autoscaler reads these too.
        "labels": {"ray.io/node-group": node.group},
        "ray_start": _ray_start(node),
        "pod": _rendered(pod, values),
    }


def _ray_start(node: Node) -> dict[str, str]:
    """Return the options of `ray start`. KubeRay hands them to bash as they are: none may hold what bash would read."""
    # What tells pods of a group apart is the end of their names, and a pod's host name is its name (names.node_name).
    name = HEAD if node.is_head else f"{node.group}-${{HOSTNAME##*-}}"
    options = {
        "node-name": name,
        "num-cpus": str(node.cpus),
        "num-gpus": str(node.gpus),
        "memory": str(node.memory),
        "object-store-memory": str(node.object_store),
        "disable-usage-stats": "true",
        # Any free port: nothing but the head's two has to be known, and no node has a neighbour in its pod.
        "min-worker-port": "0",
        "max-worker-port": "0",
        "log-color": "false",
    }
    if not node.is_head:
        return options
    return {**options, "include-dashboard": "true", "dashboard-host": "0.0.0.0", "no-monitor": "true"}  # noqa: S104
