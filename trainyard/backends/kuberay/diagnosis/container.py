"""Why a container's image cannot be had, why it does not start, or does not stay; pure.

The reasons are the kubelet's (kubernetes/pkg/kubelet), the texts its, containerd's (remotes/docker) and runc's. What
registries say stands in trainyard/seams/registry/errors.py; here is what only hosts say, and what helps there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.pods import Container, Ended, Object
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.registry import errors

KEY = "image"
# What a container waits for (kubernetes/pkg/kubelet/images/types.go).
REASONS = (
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ErrImageInspect",
    "SignatureValidationFailed",
)
# A busy kubelet waits a second for a Secret, and then pulls without it; it tries again 10 s later, and 20 s after that.
WITHOUT_LOGIN = "FailedToRetrieveImagePullSecret"
_BEGINNING = re.compile(r'^(?:Back-off pulling image "[^"]*"|Failed to pull image "[^"]*")(?:: )?')
# containerd reads hosts.toml at each pull.
_TRUST = (
    "Tell containerd on every node how to speak to it: /etc/containerd/certs.d/{registry}/hosts.toml "
    "(MicroK8s: /var/snap/microk8s/current/args/certs.d/{registry}/hosts.toml), with "
)
# What only hosts say, or say otherwise; then what registries say.
RULES = (
    Rule("", "that is no image reference", "Correct `image:` in the cluster file.", reasons=("InvalidImageName",)),
    Rule("", "the node does not have it, and may not pull it", "Load it there.", reasons=("ErrImageNeverPull",)),
    Rule(r"no space left on device", "the node's disk is full", "Make room on it: crictl rmi --prune"),
    Rule(
        r"HTTP request to an HTTPS server|HTTP request was sent to HTTPS port",
        "registry {registry} speaks TLS, and the node expects plain HTTP",
        _TRUST + 'server = "https://{registry}".',
    ),
    *errors.RULES,
    Rule("", "registry {registry} or the node refuses"),
)
# What helps on a host instead of what helps who pushes, by the key of the registry's rule.
_LOGIN = "Name the login in the cluster file: registry.username with password_env, or kuberay.pull_secrets."
HINTS = {
    "plain_http": _TRUST + 'server = "http://{registry}".',
    "untrusted": _TRUST + "its CA as `ca`.",
    "no_tls": _TRUST + "its CA as `ca`.",
    "expired": "Renew it (one of ours: invoke registry.up), or put the node's clock right.",
    "denied": f"Is its name right? If it is a private one: {_LOGIN}",
    "login": _LOGIN,
    "gone": "Is it up (one of ours: invoke registry.status), and can this node reach it by that address?",
}
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


def explain_pull(container: Container, image: str, own: Sequence[Object]) -> Diagnosis | None:
    """Return why a container's image cannot be had, None if that is not what it waits for.

    `own` are the events of its pod: before Kubernetes 1.31 only they say why a pull failed.
    """
    if container.waiting not in REASONS:
        return None
    raw, registry = _raw(container, own), registry_of(image)
    found = explain(raw, RULES, reason=container.waiting, registry=registry, client="the node", who="")
    if found is None:
        return None
    hint = HINTS.get(found.key)
    tolerates = 0.0 if container.waiting in ("ImagePullBackOff", "ErrImageNeverPull") else SOON
    return replace(
        found,
        message=f"cannot have the image {image}: {found.message}",
        summary=f"cannot pull its image: {found.message}",
        hint=hint.replace("{registry}", registry) if hint else found.hint,
        key=KEY,
        error=OutsideError,
        tolerates=MINUTE if pods.newest(own, WITHOUT_LOGIN) else tolerates,
    )


def registry_of(image: str) -> str:
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _raw(container: Container, own: Sequence[Object]) -> str:
    raw = _BEGINNING.sub("", container.message)
    if raw:
        return raw
    pulls = [message for event in own if pods.reason(event) == "Failed" and "pull" in (message := pods.message(event))]
    return _BEGINNING.sub("", pulls[-1]) if pulls else container.message


def _kind(match: re.Match[str]) -> Mapping[str, str]:
    return {"kind": {"secret": "Secret", "configmap": "ConfigMap"}[match["kind"].lower()]}


_MISSING = r'(?i)(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found'


_lack = partial(Rule, error=PrerequisiteError)
# Each message follows "cannot start: ", and is what a table shows. {host} is the host, {image} what was asked for.
CONFIG = (
    _lack(
        _MISSING,
        "there is no {kind} {name}",
        "Make it, or correct the cluster file; cluster.up makes tokens.",
        words=_kind,
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
        words=_kind,
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
    return _not_started(pod, container) or _out_of_memory(pod, container) or _crashed(pod, container, snapshot)


def explain_unprepared(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return what the kubelet lacks to start a pod's first container, None if it lacks nothing (yet)."""
    if any(each.running_since or each.ended or each.last for each in pods.containers(pod)):
        return None
    newest = pods.newest(snapshot.events_of(pod), *EVENTS, *_WENT_ON)
    rules = EVENTS.get(pods.reason(newest)) if newest else None
    return _cannot_start(pods.message(newest), rules, host=pods.host(pod)) if newest and rules else None


def log_tail(text: str) -> str:
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
    ends = [pods.message(event) for event in snapshot.events_of(pod) if pods.reason(event) == "Killing"]
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
