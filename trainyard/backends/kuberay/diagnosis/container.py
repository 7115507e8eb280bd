"""Why a container does not start, or does not stay; pure.

The reasons are the kubelet's (kubernetes/pkg/kubelet), the texts its, containerd's and runc's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trainyard.backends.kuberay import events, pods
from trainyard.backends.kuberay.debounce import SOON
from trainyard.backends.kuberay.pods import Container, Ended, Object
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError

OUT_OF_MEMORY = "OOMKilled"
# The first end may be chance; the kubelet starts it again at once.
TRIES = 2
TAIL_LINES = 12
LINE_LENGTH = 300
MORE_MEMORY = "Give it more `memory` in the cluster file: Ray alone takes about 1GiB, a head more."
RAY_IN_IMAGE = "Is Ray in the image, and does it work there? `invoke image.lint` says."
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# The kubelet has not read yet what exists.
_PASSES = re.compile(r"failed to sync (?:secret|configmap) cache|not registered")
_WENT_ON = ("Pulling", "Pulled", "Created", "Started", "SuccessfulAttachVolume")


def _kind(match: re.Match[str]) -> Mapping[str, str]:
    return {"kind": {"secret": "Secret", "configmap": "ConfigMap"}[match["kind"].lower()]}


_MISSING = r'(?i)(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found'


def _lack(pattern: str, message: str, hint: str | None, words: Callable[..., Mapping[str, str]] | None = None) -> Rule:
    return Rule(pattern, message, hint, error=PrerequisiteError, words=words)


# Each message follows "cannot start: ", and is what a table shows. {host} is the host, {image} what was asked for.
CONFIG = (
    _lack(
        _MISSING, "there is no {kind} {name}", "Make it, or correct the cluster file; cluster.up makes tokens.", _kind
    ),
    _lack(
        r"runAsNonRoot and image will run as root|has non-numeric user",
        "its image runs as root, or as a user without a number, and that is not allowed",
        "Name a user: `kuberay: {security: {run_as_user: 1000}}`, if the image can run as one.",
    ),
    _lack(r"(?s)(?P<text>.*)", "{text}", None),
)
START = (
    Rule(
        r'exec: "(?P<program>[^"]+)": (?:stat [^:]+: )?(?:no such file|executable file not found)',
        "there is no {program} in the image {image}",
        "What is wrong with it: invoke image.lint",
    ),
    Rule("", "the runtime cannot run the image {image}"),
)
SANDBOX = (
    _lack(
        r'no runtime for "(?P<name>[^"]+)" is configured',
        "containerd of the Kubernetes node {host} has no runtime {name}",
        "Install the NVIDIA container toolkit there (or whatever that runtime is), or correct "
        "`kuberay.runtime_class` in the cluster file.",
    ),
    Rule(
        "",
        "the Kubernetes node {host} cannot prepare its network",
        "Does its CNI plugin run? kubectl get pods -A",
    ),
)
MOUNT = (
    _lack(
        _MISSING,
        "there is no {kind} {name} to be mounted",
        "Make it, or correct `kuberay.volumes` in the cluster file.",
        _kind,
    ),
    _lack(
        r"hostPath type check failed: (?P<path>\S+) is not (?P<kind>.+)",
        "{path} of the Kubernetes node is not {kind}",
        "Make it on every node, or correct `kuberay.volumes` in the cluster file.",
    ),
    Rule("", "a volume cannot be mounted", "Is the storage available, and may this node have it? kubectl describe pvc"),
)
# Which table is about what, by the reason of a container's status, or of a pod's event.
STATUSES = {
    **dict.fromkeys(("CreateContainerConfigError", "PreCreateHookError"), CONFIG),
    **dict.fromkeys(
        ("CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun", "PostStartHookError"), START
    ),
}
EVENTS = {
    "FailedCreatePodSandBox": SANDBOX,
    **dict.fromkeys(("FailedMount", "FailedAttachVolume", "FailedMapVolume"), MOUNT),
}


def explain_container(pod: Object, container: Container, snapshot: Snapshot) -> Diagnosis | None:
    """Return why a container does not start or stay, None if nothing is wrong with it (yet)."""
    return _not_started(pod, container) or _out_of_memory(pod, container) or _crashed(pod, container, snapshot)


def explain_unprepared(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return what the kubelet lacks to start a pod's first container, None if it lacks nothing (yet)."""
    if any(each.running_since or each.ended or each.last for each in pods.containers(pod)):
        return None
    newest = events.newest(snapshot.events_of(pod), *EVENTS, *_WENT_ON)
    rules = EVENTS.get(events.reason(newest)) if newest else None
    return _cannot_start(events.message(newest), rules, host=pods.host(pod)) if newest and rules else None


def log_tail(text: str) -> str:
    """Return the last lines of a log, as a message shows them."""
    lines = [line.rstrip() for line in _COLOURS.sub("", text).splitlines() if line.strip()][-TAIL_LINES:]
    return "\n".join(f"    {line[:LINE_LENGTH]}" for line in lines or ["(it is empty)"])


def image_of(pod: Object, container: Container) -> str:
    """Return the image that was asked for: what runs may be shown by another of its names."""
    return str(next((each["image"] for each in pods.declared(pod) if each["name"] == container.name), container.image))


def _not_started(pod: Object, container: Container) -> Diagnosis | None:
    if container.ready:
        return None
    image = image_of(pod, container)
    if rules := STATUSES.get(container.waiting):
        return _cannot_start(container.message, rules, image=image)
    ended = container.failed
    rules = STATUSES.get(ended.reason) if ended else None
    return _cannot_start(ended.message, rules, image=image) if ended and rules else None


def _cannot_start(text: str, rules: Sequence[Rule], **words: str) -> Diagnosis | None:
    found = None if _PASSES.search(text) else explain(text, rules, **words)
    if found is None:
        return None
    raw = "" if found.raw in found.message else found.raw
    return replace(found, message=f"cannot start: {found.message}", raw=raw, tolerates=SOON)


def _out_of_memory(pod: Object, container: Container) -> Diagnosis | None:
    ended = container.failed
    if ended is None or ended.reason != OUT_OF_MEMORY or container.ready:
        return None
    limit = pods.limit(pod, container.name, "memory")
    memory = f"its memory of {limit}B" if limit and limit.endswith("i") else "the memory that it has"
    process = f"its container {container.name}" if _beside_ray(container, pod) else "it"
    summary = f"out of memory ({limit or 'no limit'})"
    return Diagnosis(f"was killed: {process} used more than {memory}", MORE_MEMORY, summary=summary)


def _crashed(pod: Object, container: Container, snapshot: Snapshot) -> Diagnosis | None:
    ended = container.ended or container.last
    if ended is None or container.ready or not _ends_for_good(pod, container) or _ended_with_head(pod, ended, snapshot):
        return None
    # Of a container that runs again, the former run has the log.
    former = container.ended is None
    ends = [events.message(event) for event in snapshot.events_of(pod) if events.reason(event) == "Killing"]
    process = f" in its container {container.name}" if _beside_ray(container, pod) else ""
    how = f"ended while it was starting{process} (exit code {ended.code})"
    if any("failed liveness probe" in message for message in ends):
        how = f"was ended by Kubernetes{process}, because it did not answer (liveness probe)"
    return Diagnosis(
        f"{how}; the end of its log:",
        RAY_IN_IMAGE,
        summary=f"ended with exit code {ended.code}" + (", Kubernetes starts it again and again" if former else ""),
        log_tail=lambda: log_tail(ended.message or snapshot.log(pod, container.name, former=former)),
    )


def _ends_for_good(pod: Object, container: Container) -> bool:
    """Say whether it ended and is not started again, or ended more often than chance."""
    if container.is_init and container.ended is not None and container.ended.code == 0:
        return False
    if container.waiting == "CrashLoopBackOff" or container.restarts >= TRIES:
        return True
    return container.ended is not None and pods.phase(pod) == "Failed"


def _ended_with_head(pod: Object, ended: Ended, snapshot: Snapshot) -> bool:
    """Say whether a worker's container was of the head before this one: Ray gives it a minute, and it has to end."""
    since = pods.ray_started(snapshot.head) if snapshot.head is not None and not pods.is_head(pod) else 0.0
    return pods.seconds(ended.started) < since


def _beside_ray(container: Container, pod: Object) -> bool:
    ray = pods.ray(pod)
    return ray is None or ray.name != container.name
