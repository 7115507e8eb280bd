"""Probe pods: each does one thing on a Kubernetes node, as a node of the cluster would, and none of them is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainyard.backends import wording
from trainyard.backends.kuberay import diagnosis, naming, pods, snapshot
from trainyard.backends.kuberay.debounce import MINUTE, Debounce
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest import pod as pod_parts
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.errors import NotReadyError, OutsideError, TrainyardError
from trainyard.seams.kube.errors import GoneError
from trainyard.seams.kube.types import POD, Object
from trainyard.spec.kubernetes import PodPlacement
from trainyard.steps import Clock

# What a pod is for: that is how it is found again, beside the cluster's label.
LABEL = "io.trainyard/probe"
# Isaac Sim's image is 20 GB: an hour at 50 Mbit/s; then `import torch` from an image that was unpacked just now.
SECONDS = 2 * 3600
POLL_SECONDS = 0.5
REMOVE_SECONDS = 20.0
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
    seconds: float
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
    return {"apiVersion": POD.api, "kind": POD.name, "metadata": _given(metadata), "spec": _given(spec)}


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
    running = _Running(location, probes, clock)
    reported = ""
    remove(location, clock=clock)
    try:
        for probe in probes:
            location.kube.create(POD, probe.pod, namespace=location.namespace)
        while not running.look():
            if running.progress != reported:
                reported = running.progress
                report(reported)
            clock.sleep(POLL_SECONDS)
    finally:
        # If that breaks, it must not hide why they are removed: the next run removes what is left.
        with suppress(TrainyardError):
            remove(location, clock=clock)
    return [running.outcomes[pods.name(probe.pod)] for probe in probes]


def remove(location: Location, *, clock: Clock) -> None:
    """Remove every probe pod and wait until they are gone; one on a silent host may take longer than we wait."""
    give_up = clock.now() + REMOVE_SECONDS
    asked: set[str] = set()
    while left := location.kube.list(POD, namespace=location.namespace, labels=_labels(location)):
        for found in left:
            if pods.name(found) not in asked:
                location.kube.delete(POD, pods.name(found), namespace=location.namespace)
                asked.add(pods.name(found))
        if clock.now() > give_up:
            return
        clock.sleep(POLL_SECONDS)


class _Running:
    """Probes under way; `progress` says which hosts still do what."""

    def __init__(self, location: Location, probes: Sequence[Probe], clock: Clock) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.progress = ""
        self._location, self._clock = location, clock
        self._titles = {pods.name(probe.pod): probe.title for probe in probes}
        self._began = self._answered = clock.now()
        self._debounce = {name: Debounce(now=clock.now) for name in self._titles}

    def look(self) -> bool:
        """Look at the pods once; say whether each has ended, or has a reason why it does not."""
        kube, where = self._location.kube, self._location
        try:
            listed = kube.list(POD, namespace=where.namespace, labels=_labels(where))
            found = {pods.name(each): each for each in listed}
            observed = snapshot.of_pods(kube, where.namespace, listed, name=self._name)
        except GoneError:
            if self._clock.now() - self._answered > MINUTE:
                raise
            return False
        self._answered = self._clock.now()
        for name in [name for name in self._titles if name not in self.outcomes]:
            self._judge(name, found.get(name), observed)
        self.progress = self._progress(found)
        return len(self.outcomes) == len(self._titles)

    def _judge(self, name: str, pod: Object | None, observed: Snapshot) -> None:
        title = self._titles[name]
        if pod is None or pods.is_leaving(pod):
            hint = "Did somebody else give the same command, or was the node drained? Repeat it."
            self._end(name, pod, OutsideError(f"{title}: its pod was removed while it ran", where=name, hint=hint))
            return
        ended = next((each.ended for each in pods.containers(pod) if each.ended), None)
        if ended and ended.reason in _RAN:
            self._end(name, pod, code=ended.code, output=ended.message)
            return
        found = diagnosis.of_pod(pod, observed)
        expired = self._debounce[name].expired([found] if found else [])
        has_failed = pods.phase(pod) == "Failed"
        if found and (expired or has_failed):
            self._end(name, pod, diagnosis.to_error(expired or found, f"namespace {self._location.namespace}"))
        elif has_failed:
            status = pod.get("status") or {}
            why = f"{status.get('reason') or 'no reason given'}: {status.get('message') or ''}".rstrip(": ")
            self._end(name, pod, OutsideError(f"{title}: its pod failed", where=why))
        elif self._clock.now() - self._began > SECONDS:
            self._end(name, pod, NotReadyError(f"{title}: its pod did not end within {SECONDS // 60} minutes"))

    def _end(
        self,
        name: str,
        pod: Object | None,
        error: TrainyardError | None = None,
        *,
        code: int | None = None,
        output: str = "",
    ) -> None:
        host = pods.host(pod) if pod else ""
        seconds = self._clock.now() - self._began
        self.outcomes[name] = Outcome(self._titles[name], host, seconds, code, output.strip(), error)

    def _progress(self, found: Mapping[str, Object]) -> str:
        doing: dict[str, list[str]] = {}
        for name, title in self._titles.items():
            if name not in self.outcomes and name in found:
                pod = found[name]
                verb = "runs on" if pods.phase(pod) == "Running" else "pulls on" if pods.host(pod) else "no room yet on"
                doing.setdefault(verb, []).append(title)
        return ", ".join(f"{verb} {wording.named(titles)}" for verb, titles in doing.items())

    def _name(self, pod: Mapping[str, Any]) -> str:
        return f"the pod on {self._titles[pods.name(pod)]}"


def _labels(location: Location) -> str:
    return f"{naming.of_cluster(location.name)},{LABEL}=verify"


def _container(location: Location, image: str, command: Sequence[str]) -> dict[str, Any]:
    security = location.section.security
    # An image may ask for every GPU (NVIDIA_VISIBLE_DEVICES=all in its ENV), and a host may grant it by default.
    env = {**pod_parts.home(security, directory="/tmp"), "NVIDIA_VISIBLE_DEVICES": "void"}  # noqa: S108
    container = {
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
    return _given(container)


def _on(host: str | None) -> dict[str, Any] | None:
    """Return what ties a pod to a host without keeping the scheduler from saying why it has no room (as DaemonSets)."""
    if host is None:
        return None
    this = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this]}}}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
