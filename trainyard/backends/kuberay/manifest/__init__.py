"""A cluster file's Kubernetes objects, from the templates in kuberay/; pure."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from trainyard import paths, render, versions
from trainyard.backends.kuberay import naming
from trainyard.backends.kuberay.groups import HEAD
from trainyard.backends.kuberay.manifest import pod
from trainyard.backends.kuberay.manifest.pod import Inputs, NodeSize
from trainyard.seams.kube.types import Object
from trainyard.spec.groups import WorkerGroup
from trainyard.spec.kubernetes import SESSIONS, KuberaySection
from trainyard.spec.ray_nodes import start_options

# The default of idle_timeout; also Ray's default.
IDLE_SECONDS = 60


@dataclass(frozen=True)
class Documents:
    """The objects to apply; None if the cluster file does not ask for one.

    `budget` and `network_policy` are applied with the RayCluster as their
    owner.
    """

    namespace: Object
    claim: Object | None
    ray_cluster: Object
    budget: Object | None = None
    network_policy: Object | None = None


def documents(inputs: Inputs) -> Documents:
    """Render every object of a cluster but its Secrets and its leash."""
    section = inputs.section
    namespace = {"namespace": section.namespace, "labels": {naming.MADE_BY: naming.US}}
    budget = None
    if section.disruption_budget:
        budget = _of_pods(inputs, "disruption-budget")
    network_policy = None
    if section.network_policy:
        network_policy = _of_pods(inputs, "network-policy")

    return Documents(
        namespace=rendered("namespace", namespace),
        claim=_claim(inputs),
        ray_cluster=rendered("raycluster", _ray_cluster(inputs)),
        budget=budget,
        network_policy=network_policy,
    )


def _claim(inputs: Inputs) -> Object | None:
    """Return the outputs claim; None without storage, or with a named claim."""
    storage = inputs.section.storage
    if storage is None or storage.size is None:
        return None

    name = inputs.spec.name
    values = {
        "name": naming.claim(name),
        "namespace": inputs.section.namespace,
        "labels": naming.labels(name),
        "annotations": {naming.OWNER: inputs.owner},
        "access_modes": [storage.access],
        "storage_class": storage.storage_class,
        "size": pod.quantity(storage.size),
    }
    return rendered("claim", values)


def _of_pods(inputs: Inputs, template: str) -> Object:
    name = inputs.spec.name
    values = {
        "name": naming.of_pods(name),
        "namespace": inputs.section.namespace,
        "labels": naming.labels(name),
        "pods": {naming.CLUSTER: name},
        "head": {naming.RAY_CLUSTER: name, naming.RAY_NODE_TYPE: "head"},
    }
    return rendered(template, values)


def groups(ray_cluster: Object) -> dict[str, dict[str, Any]]:
    found = ray_cluster["spec"].get("workerGroupSpecs") or ()
    return {str(group["groupName"]): group for group in found}


def rendered(name: str, values: Mapping[str, Any]) -> Object:
    """Render a template of kuberay/, and remove keys whose value is null."""
    template = (paths.shipped("kuberay") / f"{name}.yaml.j2").read_text(encoding="utf-8")
    found: Object = _without_nulls(yaml.safe_load(render.render(template, values)))
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _ray_cluster(inputs: Inputs) -> dict[str, Any]:
    spec = inputs.spec
    section = inputs.section
    grows = any(group.grows for group in spec.workers)
    autoscaler = None
    if grows:
        autoscaler = _autoscaler(section)

    return {
        "name": spec.name,
        "namespace": section.namespace,
        # Queues (Kueue) and cost reports read the file's labels on the RayCluster, not on pods.
        "labels": {**section.labels, **naming.labels(spec.name)},
        "annotations": {
            naming.IMAGE: inputs.image,
            naming.SIMULATED: str(inputs.simulated).lower(),
            naming.OWNER: inputs.owner,
        },
        "ray_version": versions.RAY,
        "grows": grows,
        "autoscaler": autoscaler,
        "head": _group(inputs, pod.node_size(section, spec.head), with_autoscaler=grows),
        "workers": [_workers(inputs, group) for group in spec.workers],
    }


def _autoscaler(section: KuberaySection) -> dict[str, Any]:
    variables = pod.home(section.security, directory=SESSIONS)
    own = section.autoscaler
    size = {"cpu": pod.cpus(own.cpus), "memory": pod.quantity(own.memory)}
    return {
        "version": "v2",
        "idleTimeoutSeconds": IDLE_SECONDS,
        "upscalingMode": "Default",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": size, "limits": size},
        "securityContext": pod.container_security(section.security),
        "env": [{"name": name, "value": value} for name, value in variables.items()] or None,
    }


def _workers(inputs: Inputs, group: WorkerGroup) -> dict[str, Any]:
    """Return a worker group's values; if it grows, Ray sets `replicas`."""
    replicas = None
    if not group.grows:
        replicas = group.least
    idle_seconds = None
    if group.idle_timeout is not None:
        idle_seconds = math.ceil(group.idle_timeout)

    return {
        **_group(inputs, pod.node_size(inputs.section, group)),
        "replicas": replicas,
        "least": group.least,
        "most": group.most,
        "idle_seconds": idle_seconds,
    }


def _group(inputs: Inputs, node: NodeSize, *, with_autoscaler: bool = False) -> dict[str, Any]:
    return {
        "name": node.group,
        # On the head Ray would set this label to `headgroup`. The autoscaler also reads the label.
        "labels": {"ray.io/node-group": node.group, **node.labels},
        "ray_start": _ray_start(node),
        "pod": rendered("pod", pod.values(inputs, node, with_autoscaler=with_autoscaler)),
    }


def _own_options(node: NodeSize) -> dict[str, str]:
    """Return the file's own options of `ray start`, as rayStartParams."""
    options = {}
    for name, value in start_options(node.ray_start).items():
        if value is None:
            # KubeRay writes `true` as a flag.
            options[name] = "true"
        else:
            options[name] = shlex.quote(value)

    if node.resources:
        # Ray's autoscaler expects single quotes around the JSON
        # (ray/autoscaler/_private/kuberay/autoscaling_config.py).
        options["resources"] = f"'{json.dumps(dict(node.resources))}'"
    return options


def _ray_start(node: NodeSize) -> dict[str, str]:
    """Return a group's rayStartParams, which bash expands."""
    # $HOSTNAME is the pod's name, and its end is unique in the group (naming.node_name).
    name = f"{node.group}-${{HOSTNAME##*-}}"
    if node.is_head:
        name = HEAD

    options = {
        "node-name": name,
        "num-cpus": str(node.cpus),
        "num-gpus": str(node.gpus),
        "memory": str(node.memory),
        "object-store-memory": str(node.object_store),
        "disable-usage-stats": "true",
        # Workers may use any free port: only the ports of GCS and dashboard must be known.
        "min-worker-port": "0",
        "max-worker-port": "0",
        "log-color": "false",
        **_own_options(node),
    }

    if not node.is_head:
        return options

    return {
        **options,
        "include-dashboard": "true",
        "dashboard-host": "0.0.0.0",  # noqa: S104
        "no-monitor": "true",
    }
