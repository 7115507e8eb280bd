"""Images that the pods of a node wait for, according to the pods' statuses."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.seams.kube.types import Object

PULLS = ("ContainerCreating", "PodInitializing")


def waited_for(pods: Sequence[Object]) -> str:
    """Say which pod waits for which image; "" if no pod waits.

    A pod whose image could not be pulled takes precedence, with the kubelet's
    reason.
    """
    pulling = ""
    for pod in pods:
        for status in _begun(pod):
            if not _waits(status):
                continue
            text = f"{pod['metadata']['name']} waits for {status['image']}"
            if _reason(status) not in PULLS:
                return f"{text}: {status['state']['waiting'].get('message') or _reason(status)}"
            pulling = pulling or text
    return pulling


def _begun(pod: Object) -> Sequence[Object]:
    """Return what may start now: the next init container, else all others."""
    status = pod.get("status") or {}
    for init in status.get("initContainerStatuses") or ():
        if "terminated" not in (init.get("state") or {}):
            return [init]
    return status.get("containerStatuses") or ()


def _waits(status: Object) -> bool:
    """Say whether a container waits for its image, and has no image id yet."""
    reason = _reason(status)
    return not status.get("imageID") and (reason in PULLS or "Image" in reason)


def _reason(status: Object) -> str:
    return str(((status.get("state") or {}).get("waiting") or {}).get("reason") or "")
