"""What a pod says about itself; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.backends.kuberay import names
from trainyard.spec.units import SIZES

Pod = Mapping[str, Any]
# What a container waits for while the kubelet lets time pass (kubernetes/pkg/kubelet/images/types.go).
PULL_BACK_OFF = "ImagePullBackOff"
# What it waits for after a pull that failed, for a moment: the back-off comes next.
PULL_ERROR = "ErrImagePull"
CRASH_LOOP = "CrashLoopBackOff"
# The units of Kubernetes quantities (apimachinery/pkg/api/resource/suffix.go) that are not ours.
_UNITS = {
    "m": 1e-3,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": SIZES["KiB"],
    "Mi": SIZES["MiB"],
    "Gi": SIZES["GiB"],
    "Ti": SIZES["TiB"],
}


@dataclass(frozen=True)
class Ended:
    """How a container ended. `started` and `finished` are as Kubernetes writes times."""

    reason: str
    code: int
    message: str
    started: str
    finished: str


@dataclass(frozen=True)
class Container:
    """A container of a pod, as it is now; `last` is how its former run ended."""

    name: str
    image: str
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
        return ended if ended and (ended.code != 0 or ended.reason == "OOMKilled") else None


def uid(pod: Pod) -> str:
    """Return what tells a pod from an earlier one of the same name."""
    return str(pod["metadata"]["uid"])


def name(pod: Pod) -> str:
    """Return the pod's name."""
    return str(pod["metadata"]["name"])


def host(pod: Pod) -> str:
    """Return the Kubernetes node that it was given to, "" if it was not yet."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def group(pod: Pod) -> str:
    """Return the Ray group, `head` for the head."""
    labels = pod["metadata"].get("labels") or {}
    return "head" if is_head(pod) else str(labels.get(names.RAY_GROUP, ""))


def is_head(pod: Pod) -> bool:
    """Say whether it is the head of a Ray cluster."""
    return (pod["metadata"].get("labels") or {}).get(names.RAY_NODE_TYPE) == "head"


def phase(pod: Pod) -> str:
    """Return Pending, Running, Succeeded, Failed or Unknown."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_leaving(pod: Pod) -> bool:
    """Say whether it is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Pod) -> bool:
    """Say whether Kubernetes calls it ready, and nobody deletes it."""
    return not is_leaving(pod) and condition(pod, "Ready").get("status") == "True"


def condition(found: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of an object's status, {} if it has none of that kind."""
    conditions: Sequence[Mapping[str, Any]] = (found.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def runs_ray(pod: Pod) -> bool:
    """Say whether its Ray runs, ready or not, and nobody deletes it."""
    node = ray(pod)
    return is_ready(pod) or (not is_leaving(pod) and node is not None and node.running_since is not None)


def is_backing_off(pod: Pod) -> bool:
    """Say whether its Ray does not run, and the kubelet waits, for up to five minutes, until it tries again."""
    waits = any(one.waiting in (PULL_ERROR, PULL_BACK_OFF, CRASH_LOOP) for one in containers(pod))
    return waits and not is_leaving(pod) and not runs_ray(pod)


def containers(pod: Pod) -> tuple[Container, ...]:
    """Return its containers that Kubernetes says something about, the ones that start first at the front."""
    status = pod.get("status") or {}
    return tuple(
        _container(one, is_init=key == "initContainerStatuses")
        for key in ("initContainerStatuses", "containerStatuses")
        for one in status.get(key) or ()
    )


def ray(pod: Pod) -> Container | None:
    """Return the container that Ray runs in: KubeRay's is the first one of a pod."""
    first = next(iter((pod.get("spec") or {}).get("containers") or ()), None)
    if first is None:
        return None
    return next((one for one in containers(pod) if one.name == first["name"] and not one.is_init), None)


def limit(pod: Pod, container: str, resource: str) -> str | None:
    """Return a limit of a container as it is written there, None if it has none."""
    spec = pod.get("spec") or {}
    for one in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        if one["name"] == container:
            found = ((one.get("resources") or {}).get("limits") or {}).get(resource)
            return None if found is None else str(found)
    return None


def requests(pod: Pod) -> dict[str, str]:
    """Return what the pod's only container asks the scheduler for; of several, that of the first."""
    spec = pod.get("spec") or {}
    for one in spec.get("containers") or ():
        found = (one.get("resources") or {}).get("requests") or (one.get("resources") or {}).get("limits") or {}
        return {str(key): str(value) for key, value in found.items()}
    return {}


def quantity(text: str) -> float:
    """Return a Kubernetes quantity as a number: `500m` is 0.5, `2Gi` 2147483648."""
    for unit in sorted(_UNITS, key=len, reverse=True):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * _UNITS[unit]
    return float(text)


def seconds(text: str | None) -> float:
    """Return a time of Kubernetes in Unix seconds, 0 for none."""
    if not text:
        return 0.0
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(rest + '000000')[:6]}+00:00").timestamp()


def _container(status: Mapping[str, Any], *, is_init: bool) -> Container:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    waiting = state.get("waiting") or {}
    return Container(
        name=str(status["name"]),
        image=str(status.get("image") or ""),
        is_init=is_init,
        ready=bool(status.get("ready")),
        restarts=int(status.get("restartCount") or 0),
        running_since=(state.get("running") or {}).get("startedAt"),
        waiting=str(waiting.get("reason") or ""),
        message=str(waiting.get("message") or ""),
        ended=_ended(state.get("terminated")),
        last=_ended(last.get("terminated")),
    )


def _ended(found: Mapping[str, Any] | None) -> Ended | None:
    if not found:
        return None
    return Ended(
        reason=str(found.get("reason") or ""),
        code=int(found.get("exitCode") or 0),
        message=str(found.get("message") or ""),
        started=str(found.get("startedAt") or ""),
        finished=str(found.get("finishedAt") or ""),
    )
