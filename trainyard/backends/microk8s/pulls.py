"""Images that the pods of a node wait for, as its kubelet tells."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.seams.kube.types import Object

PULLS = ("ContainerCreating", "PodInitializing")


def waited_for(pods: Sequence[Object]) -> str:
    """Return what the first pod that waits for an image waits for, "" where none does.

    An image that could not be pulled comes first, with the kubelet's reason.
    """
    waiting = [(pod, status) for pod in pods for status in _begun(pod) if _waits(status)]
    waiting.sort(key=lambda entry: _reason(entry[1]) in PULLS)
    if not waiting:
        return ""
    pod, status = waiting[0]
    what = f"{pod['metadata']['name']} waits for {status['image']}"
    if _reason(status) in PULLS:
        return what
    return f"{what}: {status['state']['waiting'].get('message') or _reason(status)}"


def _begun(pod: Object) -> Sequence[Object]:
    """Return the containers that are begun now: init containers one by one, then the others
    together.
    """
    status = pod.get("status") or {}
    for init in status.get("initContainerStatuses") or ():
        if "terminated" not in (init.get("state") or {}):
            return [init]
    return status.get("containerStatuses") or ()


def _waits(status: Object) -> bool:
    """Say whether a container waits for its image; one whose image is there has an id."""
    reason = _reason(status)
    return not status.get("imageID") and (reason in PULLS or "Image" in reason)


def _reason(status: Object) -> str:
    return str(((status.get("state") or {}).get("waiting") or {}).get("reason") or "")
