"""Pods, events and RayClusters as the Kubernetes API gives them, in the fields that tests need."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
IMAGE = "192.0.2.10:5000/team/ray@sha256:" + "a" * 64
STARTED = "2026-01-02T03:00:00Z"
LATER = "2026-01-02T03:05:00Z"


def pod(
    name: str,
    *,
    group: str = "gpu",
    host: str = "kube-2",
    phase: str = "Pending",
    containers: tuple[Object, ...] = (),
    init: tuple[Object, ...] = (),
    conditions: tuple[Object, ...] = (),
    leaving: bool = False,
    ready: bool = False,
    **status: Any,
) -> Object:
    """Return a pod of cluster `lab`; its uid is `uid-` and its name."""
    is_head = group == "head"
    labels = {"ray.io/cluster": "lab", "ray.io/node-type": "head" if is_head else "worker"}
    labels["ray.io/group"] = "headgroup" if is_head else group
    metadata: Object = {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels}
    metadata["creationTimestamp"] = STARTED

    if leaving:
        metadata["deletionTimestamp"] = LATER

    container = "ray-head" if is_head else "ray-worker"
    limits = {"cpu": "2", "memory": "4Gi"}
    made = [
        {"name": container, "image": IMAGE, "resources": {"limits": limits, "requests": limits}}
    ]
    waits = [] if is_head else [{"name": "wait-gcs-ready", "image": IMAGE}]

    if ready:
        phase = "Running"
        conditions = (condition("Ready", "True"),)
        containers = containers or (running(container, ready=True),)

    return {
        "metadata": metadata,
        "spec": {"nodeName": host, "containers": made, "initContainers": waits},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": list(containers),
            "initContainerStatuses": list(init),
            **status,
        },
    }


def head(**more: Any) -> Object:
    """Return the head's pod, ready unless told otherwise."""
    return pod("lab-head-h1", group="head", host="kube-1", **({"ready": True} | more))


def condition(kind: str, status: str, *, reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def waiting(
    reason: str,
    message: str = "",
    *,
    name: str = "ray-worker",
    restarts: int = 0,
    last: Object | None = None,
) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return _container(name, state, restarts=restarts, last=last)


def running(
    name: str = "ray-worker",
    *,
    since: str = STARTED,
    ready: bool = False,
    restarts: int = 0,
    last: Object | None = None,
) -> Object:
    return _container(
        name, {"running": {"startedAt": since}}, ready=ready, restarts=restarts, last=last
    )


def ended(reason: str, code: int, *, message: str = "", started: str = LATER) -> Object:
    """Return how a container ended: a state, or a last state."""
    found = {
        "reason": reason,
        "exitCode": code,
        "message": message,
        "startedAt": started,
        "finishedAt": started,
    }
    return {"terminated": found}


def stopped(state: Object, *, name: str = "ray-worker", restarts: int = 0) -> Object:
    return _container(name, state, restarts=restarts)


def event(
    about: Object, reason: str, message: str, *, when: str = LATER, kind: str = "Warning"
) -> Object:
    """Return an event about an object."""
    return {
        "metadata": {"uid": f"event-{reason}-{when}", "resourceVersion": "1"},
        "involvedObject": {"uid": about["metadata"]["uid"]},
        "reason": reason,
        "message": message,
        "type": kind,
        "lastTimestamp": when,
    }


def ray_cluster(*groups: Object, conditions: tuple[Object, ...] = ()) -> Object:
    """Return the RayCluster `lab`."""
    return {
        "metadata": {
            "name": "lab",
            "namespace": "team",
            "uid": "uid-lab",
            "creationTimestamp": STARTED,
            "labels": {"io.trainyard/cluster": "lab"},
            "annotations": {"io.trainyard/image": IMAGE, "io.trainyard/simulated-gpus": "false"},
        },
        "spec": {
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "1", "num-gpus": "0", "memory": str(2**31)}
            },
            "workerGroupSpecs": list(groups),
        },
        "status": {"conditions": list(conditions)},
    }


def group(name: str, least: int, most: int | None = None) -> Object:
    started = {"num-cpus": "2", "num-gpus": "1", "memory": str(2**32)}
    return {
        "groupName": name,
        "minReplicas": least,
        "maxReplicas": least if most is None else most,
        "rayStartParams": started,
    }


def _container(
    name: str, state: Object, *, ready: bool = False, restarts: int = 0, last: Object | None = None
) -> Object:
    return {
        "name": name,
        "image": IMAGE,
        "ready": ready,
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }
