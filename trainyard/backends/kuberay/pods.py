"""The facts that a pod, or another object of Kubernetes, says about itself; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.backends.kuberay import naming
from trainyard.seams.kube.types import Object

# Reasons of a container while its kubelet waits before a retry lets time pass
# (kubernetes/pkg/kubelet/images/types.go).
BACKING_OFF = ("ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff")
_RAY = (naming.HEAD_CONTAINER, naming.WORKER_CONTAINER)


@dataclass(frozen=True)
class Ended:
    """How a container ended; the time is as Kubernetes writes it."""

    reason: str
    code: int
    message: str
    started: str


@dataclass(frozen=True)
class Container:
    """A container of a pod, as it is now; `last` is how its former run ended."""

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
        """Return how it ended the last time, if that was no success."""
        ended = self.ended or self.last
        if ended and (ended.code != 0 or ended.reason == "OOMKilled"):
            return ended
        return None


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def host(pod: Object) -> str:
    """Return the Kubernetes node that the pod was assigned to, "" before that."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def group(pod: Object) -> str:
    if is_head(pod):
        return "head"
    return str((pod["metadata"].get("labels") or {}).get(naming.RAY_GROUP, ""))


def is_head(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(naming.RAY_NODE_TYPE) == "head"


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Object) -> bool:
    return not is_leaving(pod) and condition(pod, "Ready").get("status") == "True"


def condition(owner: Object, kind: str) -> Mapping[str, Any]:
    conditions: Sequence[Mapping[str, Any]] = (owner.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def internal_ip(host: Object) -> str:
    """Return the address by which a Kubernetes node is reached, "" where it has none."""
    addresses = host["status"].get("addresses") or ()
    for address in addresses:
        if address["type"] == "InternalIP":
            return str(address["address"])
    return ""


def offered(host: Object, resource: str) -> int:
    """Return how many GPUs a Kubernetes node has for pods."""
    return int(((host.get("status") or {}).get("allocatable") or {}).get(resource, 0))


def runs_ray(pod: Object) -> bool:
    return is_ready(pod) or (not is_leaving(pod) and ray_started(pod) > 0)


def ray_started(pod: Object) -> float:
    """Return when the pod's running Ray started, in Unix seconds; 0 if none runs."""
    ray = next((each for each in containers(pod) if each.name in _RAY), None)
    return seconds(ray.running_since) if ray else 0.0


def is_backing_off(pod: Object) -> bool:
    """Say whether Ray does not run because the kubelet waits up to 5 min before a retry."""
    waits = any(container.waiting in BACKING_OFF for container in containers(pod))
    return waits and not is_leaving(pod) and not runs_ray(pod)


def containers(pod: Object) -> tuple[Container, ...]:
    """Return the containers with a status, in the order in which they start."""
    status = pod.get("status") or {}
    return tuple(
        _container(each, is_init=key == "initContainerStatuses")
        for key in ("initContainerStatuses", "containerStatuses")
        for each in status.get(key) or ()
    )


def declared(pod: Object, container: str) -> Mapping[str, Any]:
    """Return a container's declaration in the pod's spec."""
    spec = pod.get("spec") or {}
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return next((each for each in every if each["name"] == container), {})


def limit(pod: Object, container: str, resource: str) -> str:
    return str(
        ((declared(pod, container).get("resources") or {}).get("limits") or {}).get(resource, "")
    )


def gpus(pod: Object, resource: str) -> int:
    """Return how many GPUs a pod holds."""
    limits = (limit(pod, container["name"], resource) for container in pod["spec"]["containers"])
    return sum(int(text) for text in limits if text)


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
    reason, message, started = (
        str(terminated.get(key) or "") for key in ("reason", "message", "startedAt")
    )
    return Ended(reason, int(terminated.get("exitCode") or 0), message, started)


def when(event: Object) -> float:
    """Return when an event was last seen, in Unix seconds of the cluster."""
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
