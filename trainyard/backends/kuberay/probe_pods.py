"""Probe pods: each does one thing on a Kubernetes node, as a node of the cluster would, and none of them is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from trainyard import wording
from trainyard.backends.kuberay import diagnosis, naming, pods, snapshot
from trainyard.backends.kuberay.debounce import Debounce
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest import pod as pod_parts
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.errors import OutsideError, TrainyardError
from trainyard.seams.kube.types import POD, Object
from trainyard.spec.kubernetes import PodPlacement
from trainyard.steps import Clock

# What a pod is for: that is how it is found again, beside the cluster's label.
LABEL = "io.trainyard/probe"
# Isaac Sim's image is 20 GB: an hour at 50 Mbit/s; then `import torch` from an image that was unpacked just now.
SECONDS = 2 * 3600
POLL_SECONDS = 0.5
# `import ray` takes 150 MB, `import torch` up to 2 GiB; asked for is next to nothing, so that a full host has room.
REQUESTS = {"cpu": "10m", "memory": "16Mi"}
LIMITS = {"cpu": "2", "memory": "4Gi"}
# How a container ends that ran; any other reason is Kubernetes' (OOMKilled, StartError, ContainerCannotRun).
_RAN = ("Completed", "Error")


@dataclass(frozen=True)
class Probe:
    """A pod, and what messages call it: its host."""

    title: str
    pod: Object


@dataclass(frozen=True)
class Outcome:
    """How a probe ended: an exit code and its last words, or an error. `host` is where it ran, "" if nowhere."""

    title: str
    host: str
    seconds: float = 0.0
    code: int | None = None
    output: str = ""
    error: TrainyardError | None = None


def pod(
    location: Location,
    name: str,
    *,
    image: str,
    command: Sequence[str],
    pull_secrets: Sequence[str],
    placement: PodPlacement,
    host: str | None,
) -> Object:
    """Return a pod with the cluster's account, user, labels and logins, and next to no resources.

    `host` None: wherever there is room; `placement` is that of the group for whose node it stands.
    """
    section = location.section
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": SECONDS,
        # What runs in it ends at once, and holds nothing.
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "serviceAccountName": section.service_account,
        "imagePullSecrets": [{"name": secret} for secret in pull_secrets] or None,
        "nodeSelector": dict(placement.node_selector) or None,
        "tolerations": pod_parts.tolerations(placement, None) or None,
        "affinity": _on(host),
        "priorityClassName": placement.priority_class,
        "securityContext": pod_parts.pod_security(section.security),
        "containers": [_container(location, image, command)],
    }
    labels = {**section.labels, **naming.labels(location.name), LABEL: "verify"}
    metadata = {"name": name, "labels": labels, "annotations": dict(section.annotations) or None}
    return {"apiVersion": POD.api, "kind": POD.name, "metadata": metadata, "spec": spec}


def run(
    location: Location,
    probes: Sequence[Probe],
    *,
    report: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> list[Outcome]:
    """Run every probe to its end and return the outcomes in their order; raise what the API refuses to all of them.

    What an earlier run left is removed first.
    """
    clock = clock or Clock()
    remove(location)
    try:
        for probe in probes:
            location.kube.create(POD, probe.pod, namespace=location.namespace)
        return _outcomes(location, probes, report, clock)
    finally:
        # If that breaks, it must not hide why they are removed: the next run removes what is left.
        with suppress(TrainyardError):
            remove(location)


def remove(location: Location) -> None:
    for found in _listed(location):
        location.kube.delete(POD, pods.name(found), namespace=location.namespace)


def _outcomes(
    location: Location, probes: Sequence[Probe], report: Callable[[str], None], clock: Clock
) -> list[Outcome]:
    """Look at the pods until each has ended, or has a reason why it does not."""
    titles = {pods.name(probe.pod): probe.title for probe in probes}
    debounces = {name: Debounce(now=clock.now) for name in titles}
    outcomes: dict[str, Outcome] = {}
    began, reported = clock.now(), ""
    while True:
        listed = {pods.name(found): found for found in _listed(location)}
        observed = snapshot.of_pods(
            location.kube, location.namespace, listed.values(), name=lambda pod: f"the pod on {titles[pods.name(pod)]}"
        )
        for name in [name for name in titles if name not in outcomes]:
            outcome = _outcome(location, titles[name], listed.get(name), observed, debounces[name])
            if outcome:
                outcomes[name] = replace(outcome, seconds=clock.now() - began)
        running = [title for name, title in titles.items() if name not in outcomes]
        if not running:
            return [outcomes[name] for name in titles]
        if wording.named(running) != reported:
            reported = wording.named(running)
            report(f"pulls and runs on {reported}")
        clock.sleep(POLL_SECONDS)


def _outcome(
    location: Location, title: str, pod: Object | None, observed: Snapshot, debounce: Debounce
) -> Outcome | None:
    """Return how a probe ended, or why it does not; None while it may still end."""
    if pod is None or pods.is_leaving(pod):
        hint = "Did somebody else give the same command, or was the node drained? Repeat it."
        return Outcome(title, "", error=OutsideError(f"{title}: its pod was removed while it ran", hint=hint))
    ended = next((each.ended for each in pods.containers(pod) if each.ended), None)
    if ended and ended.reason in _RAN:
        return Outcome(title, pods.host(pod), code=ended.code, output=ended.message.strip())
    cause = diagnosis.of_pod(pod, observed)
    expired = debounce.expired([cause] if cause else [])
    if pods.phase(pod) != "Failed" and not expired:
        return None
    if cause:
        error = diagnosis.to_error(cause, f"namespace {location.namespace}")
    else:
        error = OutsideError(f"{title}: its pod failed", where=str((pod.get("status") or {}).get("reason") or ""))
    return Outcome(title, pods.host(pod), error=error)


def _listed(location: Location) -> list[Object]:
    labels = f"{naming.of_cluster(location.name)},{LABEL}=verify"
    return location.kube.list(POD, namespace=location.namespace, labels=labels)


def _container(location: Location, image: str, command: Sequence[str]) -> dict[str, Any]:
    security = location.section.security
    # An image may ask for every GPU (NVIDIA_VISIBLE_DEVICES=all in its ENV), and a host may grant it by default.
    env = {**pod_parts.home(security, directory="/tmp"), "NVIDIA_VISIBLE_DEVICES": "void"}  # noqa: S108
    return {
        "name": "probe",
        "image": image,
        # Whatever is there already, the registry is asked.
        "imagePullPolicy": "Always",
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in sorted(env.items())],
        "resources": {"limits": LIMITS, "requests": REQUESTS},
        "securityContext": pod_parts.container_security(security),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _on(host: str | None) -> dict[str, Any] | None:
    """Return what ties a pod to a host without keeping the scheduler from saying why it has no room (as DaemonSets)."""
    if host is None:
        return None
    this = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this]}}}
