"""Facts about pods, hosts, events and other objects of Kubernetes; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from trainyard.backends.kuberay import naming
from trainyard.seams.kube.types import Object

# Reasons of a container whose kubelet backs off before it retries
# (kubernetes/pkg/kubelet/images/types.go).
BACKING_OFF = ("ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff")
_RAY = (naming.HEAD_CONTAINER, naming.WORKER_CONTAINER)


@dataclass(frozen=True)
class Ended:
    """How a container ended. `started` is a time as in RFC 3339."""

    reason: str
    code: int
    message: str
    started: str


@dataclass(frozen=True)
class Container:
    """The present state of a pod's container.

    `ended` is the end of the present run, None while it runs. `last` is the end
    of the former run. `waiting` and `message` are the reason and text of a
    container that waits to start.
    """

    name: str
    is_init: bool
    ready: bool
    restarts: int
    running_since: str | None
    waiting: str
    message: str
    ended: Ended | None
    last: Ended | None

    @property
    def failed(self) -> Ended | None:
        ended = self.ended or self.last
        if ended and (ended.code != 0 or ended.reason == "OOMKilled"):
            return ended
        return None


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def host(pod: Object) -> str:
    """Return the pod's Kubernetes node; "" before the pod is scheduled."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def group(pod: Object) -> str:
    if is_head(pod):
        return "head"
    return labels_of(pod).get(naming.RAY_GROUP, "")


def is_head(pod: Object) -> bool:
    return labels_of(pod).get(naming.RAY_NODE_TYPE) == "head"


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_running(pod: Object) -> bool:
    return phase(pod) == "Running" and not is_leaving(pod)


def is_leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Object) -> bool:
    return not is_leaving(pod) and is_true(pod, "Ready")


def condition(owner: Object, kind: str) -> Mapping[str, Any]:
    conditions: Sequence[Mapping[str, Any]] = (owner.get("status") or {}).get("conditions") or ()
    return next((found for found in conditions if found.get("type") == kind), {})


def is_true(owner: Object, kind: str) -> bool:
    return condition(owner, kind).get("status") == "True"


def labels_of(found: Object) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


def annotations_of(found: Object) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def internal_ip(host: Object) -> str:
    for address in host["status"].get("addresses") or ():
        if address["type"] == "InternalIP":
            return str(address["address"])
    return ""


def offered(host: Object, resource: str) -> int:
    """Return how many GPUs a host offers to pods, including those in use."""
    allocatable = (host.get("status") or {}).get("allocatable") or {}
    return int(allocatable.get(resource, 0))


def runs_ray(pod: Object) -> bool:
    return is_ready(pod) or (not is_leaving(pod) and ray_started(pod) > 0)


def ray_started(pod: Object) -> float:
    """Return Ray's start in Unix seconds; 0 if its container does not run."""
    for container in containers(pod):
        if container.name in _RAY:
            return seconds(container.running_since)
    return 0.0


def is_backing_off(pod: Object) -> bool:
    """Say whether Ray waits for the kubelet's retry, which may take 5 min."""
    waits = any(container.waiting in BACKING_OFF for container in containers(pod))
    return waits and not is_leaving(pod) and not runs_ray(pod)


def containers(pod: Object) -> tuple[Container, ...]:
    """Return the containers that have a status, init containers first."""
    status = pod.get("status") or {}
    found = []
    for init_container in status.get("initContainerStatuses") or ():
        found.append(_container(init_container, is_init=True))
    for container in status.get("containerStatuses") or ():
        found.append(_container(container, is_init=False))
    return tuple(found)


def waits_for_head(pod: Object) -> bool:
    running = [container.name for container in containers(pod) if container.running_since]
    return naming.WAIT_CONTAINER in running


def declared(pod: Object, container: str) -> Mapping[str, Any]:
    """Return a container's entry in the pod's spec, or {}."""
    spec = pod.get("spec") or {}
    declared_containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for declaration in declared_containers:
        if declaration["name"] == container:
            return cast(Mapping[str, Any], declaration)
    return {}


def limit(pod: Object, container: str, resource: str) -> str:
    resources = declared(pod, container).get("resources") or {}
    limits = resources.get("limits") or {}
    return str(limits.get(resource, ""))


def gpus(pod: Object, resource: str) -> int:
    held = 0
    for container in pod["spec"]["containers"]:
        held += int(limit(pod, container["name"], resource) or 0)
    return held


def seconds(text: str | None) -> float:
    if not text:
        return 0.0
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _container(status: Mapping[str, Any], *, is_init: bool) -> Container:
    state = status.get("state") or {}
    last = status.get("lastState") or {}
    waiting = state.get("waiting") or {}
    return Container(
        name=str(status["name"]),
        is_init=is_init,
        ready=bool(status.get("ready")),
        restarts=int(status.get("restartCount") or 0),
        running_since=(state.get("running") or {}).get("startedAt"),
        waiting=str(waiting.get("reason") or ""),
        message=str(waiting.get("message") or ""),
        ended=_ended(state.get("terminated")),
        last=_ended(last.get("terminated")),
    )


def _ended(terminated: Mapping[str, Any] | None) -> Ended | None:
    if not terminated:
        return None
    return Ended(
        reason=str(terminated.get("reason") or ""),
        code=int(terminated.get("exitCode") or 0),
        message=str(terminated.get("message") or ""),
        started=str(terminated.get("startedAt") or ""),
    )


def when(event: Object) -> float:
    """Return an event's last time, in Unix seconds of the cluster's clock."""
    return seconds(event.get("lastTimestamp") or event.get("eventTime"))


def reason(event: Object) -> str:
    return str(event.get("reason") or "")


def message(event: Object) -> str:
    return str(event.get("message") or "")


def newest(events: Sequence[Object], *reasons: str) -> Object | None:
    for event in reversed(events):
        if reason(event) in reasons:
            return event
    return None
