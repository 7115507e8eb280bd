"""What the pods of a RayCluster will ask of Kubernetes, before there is any; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.backends.kuberay.capacity import amounts, hosts
from trainyard.backends.kuberay.capacity.amounts import Amounts
from trainyard.seams.kube.types import Object


@dataclass(frozen=True)
class Demand:
    """What one pod of a group will want. `alone`: never on one host with another node of the cluster.

    `containers` are the requests and limits of each container.
    """

    group: str
    requests: Amounts
    limits: Amounts
    containers: tuple[tuple[Amounts, Amounts], ...]
    selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    alone: bool
    priority_class: str | None = None


def demands(ray_cluster: Object, counts: Mapping[str, int], overheads: Mapping[str, Amounts]) -> tuple[Demand, ...]:
    """Return what so many pods of each group want, the head first; `overheads` is what a runtime class adds to each."""
    return tuple(_demands(ray_cluster["spec"], counts, overheads))


def _demands(spec: Mapping[str, Any], counts: Mapping[str, int], overheads: Mapping[str, Amounts]) -> Iterator[Demand]:
    head = spec["headGroupSpec"]["template"]["spec"]
    beside = [_autoscaler(spec)] if spec.get("enableInTreeAutoscaling") else []
    for _ in range(counts.get("head", 0)):
        yield _demand("head", head, overheads, beside=beside)
    for group in spec.get("workerGroupSpecs") or ():
        name, template = group["groupName"], group["template"]["spec"]
        for _ in range(counts.get(name, 0)):
            yield _demand(name, template, overheads, first=[_container(amounts.WAIT_FOR_HEAD)])


def _demand(
    group: str,
    template: Mapping[str, Any],
    overheads: Mapping[str, Amounts],
    *,
    beside: list[Object] | None = None,
    first: list[Object] | None = None,
) -> Demand:
    whole = {
        "containers": [*template["containers"], *(beside or ())],
        "initContainers": [*(template.get("initContainers") or ()), *(first or ())],
    }
    added = overheads.get(template.get("runtimeClassName") or "", {})
    return Demand(
        group=group,
        requests=amounts.total((amounts.of_pod(whole), added)),
        limits=amounts.total((amounts.of_pod(whole, kind="limits"), added)),
        containers=tuple(
            (amounts.of_container(one), amounts.of_container(one, kind="limits"))
            for one in (*whole["containers"], *whole["initContainers"])
        ),
        selector=template.get("nodeSelector") or {},
        tolerations=tuple(template.get("tolerations") or ()),
        alone=hosts.is_alone(template),
        priority_class=template.get("priorityClassName"),
    )


def _autoscaler(spec: Mapping[str, Any]) -> Object:
    resources = (spec.get("autoscalerOptions") or {}).get("resources")
    return {"resources": resources} if resources else _container(amounts.AUTOSCALER)


def _container(quantities: Mapping[str, str]) -> Object:
    return {"resources": {"requests": dict(quantities), "limits": dict(quantities)}}
