"""Why an image cannot be pulled, or a container fails to start or ends; pure.

The reasons are the kubelet's (kubernetes/pkg/kubelet). The texts are from the
kubelet, containerd (remotes/docker) and runc.
trainyard/seams/registry/errors.py has the rules for registries' texts, this
module the rules and hints for hosts.
"""

from __future__ import annotations

import re
from dataclasses import replace

from trainyard import wording
from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.pods import Container, Ended
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis, Rule, explain, shortened
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.docker.images import registry_of
from trainyard.seams.kube.types import Object
from trainyard.seams.registry import errors

# Reasons of a container whose image could not be pulled (kubernetes/pkg/kubelet/images/types.go).
NO_IMAGE = (
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ErrImageInspect",
    "SignatureValidationFailed",
)
_BEGINNING = re.compile(r'^(?:Back-off pulling image "[^"]*"|Failed to pull image "[^"]*")(?:: )?')
# containerd needs no restart: it reads hosts.toml at each pull.
_TRUST = (
    "Configure the registry for containerd on every node: "
    "/etc/containerd/certs.d/{registry}/hosts.toml "
    "(MicroK8s: /var/snap/microk8s/current/args/certs.d/{registry}/hosts.toml), with "
)
# Rules for errors that only hosts report, or report in other words, come first.
RULES = (
    Rule(
        r"no space left on device", "the node's disk is full", "Make room on it: crictl rmi --prune"
    ),
    *errors.RULES,
    Rule("", "registry {registry} or the node refuses"),
)
# Hints for a host's pull, by the rule's key. The rules' own hints are for a push.
_LOGIN = (
    "Is the login in the cluster file right: registry.username with password_env, or "
    "kuberay.pull_secrets?"
)
HINTS = {
    "plain_http": _TRUST + 'server = "http://{registry}".',
    "untrusted": _TRUST + "its CA as `ca`.",
    "no_tls": _TRUST + "its CA as `ca`.",
    "denied": f"Is the image's name right? If the image is private: {_LOGIN}",
    "login": _LOGIN,
    "gone": (
        "Is the registry up (your own: trainyard registry.status), and can this node reach its "
        "address?"
    ),
}
# NOT_STARTED: reasons in the status of a container that does not start. UNPREPARED: reasons in a
# pod's events before any container can start.
NOT_STARTED = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "ContainerCannotRun",
    "PreCreateHookError",
    "PostStartHookError",
)
UNPREPARED = ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "FailedMapVolume")
# One end of a container may be chance; this many restarts are a crash.
TRIES = 2
TAIL_LINES = 12
LINE_LENGTH = 300
CRASH = "crash"
RAY_IN_IMAGE = "Check whether Ray works in the image: trainyard image.lint"


def explain_container(pod: Object, container: Container, snapshot: Snapshot) -> Diagnosis | None:
    """Return why a container has no image, does not start, or ends."""
    if container.ready:
        return None
    return (
        _no_image(pod, container)
        or _not_started(container)
        or _out_of_memory(pod, container)
        or _crashed(pod, container, snapshot)
    )


def explain_unprepared(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return why the kubelet cannot start a pod's first container, if known.

    Only the newest event counts: a later "Pulling" or "Created" ends a failure.
    """
    if any(each.running_since or each.ended or each.last for each in pods.containers(pod)):
        return None

    newest = pods.newest(
        snapshot.events_of(pod), *UNPREPARED, "Pulling", "Pulled", "Created", "Started"
    )
    if newest and pods.reason(newest) in UNPREPARED:
        return _cannot_start(pods.message(newest))
    return None


def _no_image(pod: Object, container: Container) -> Diagnosis | None:
    if container.waiting not in NO_IMAGE:
        return None

    # The status may show another name of the image.
    image = str(pods.declared(pod, container.name).get("image", ""))
    registry = registry_of(image)
    raw = _BEGINNING.sub("", container.message) or container.message
    cause = explain(raw, RULES, registry=registry, client="the node", who="")
    if cause is None:
        return None

    hint = cause.hint
    if cause.key in HINTS:
        hint = HINTS[cause.key].replace("{registry}", registry)

    tolerates = SOON
    if cause.key == "login":
        # A busy kubelet waits only one second for the login's Secret, then pulls without a login.
        # Within 30 s it retries twice with the Secret.
        tolerates = MINUTE
    elif container.waiting == "ImagePullBackOff":
        tolerates = 0.0

    return replace(
        cause,
        message=f"cannot pull the image {image}: {cause.message}",
        summary=f"cannot pull its image: {cause.message}",
        hint=hint,
        key="image",
        error=OutsideError,
        tolerates=tolerates,
    )


def _not_started(container: Container) -> Diagnosis | None:
    if container.waiting in NOT_STARTED:
        return _cannot_start(container.message)
    ended = container.failed
    if ended and ended.reason in NOT_STARTED:
        return _cannot_start(ended.message)
    return None


def _cannot_start(text: str) -> Diagnosis:
    message = f"cannot start: {shortened(text)}"
    return Diagnosis(
        message,
        "Make what is missing, or correct the cluster file (image, kuberay.volumes, "
        "runtime_class, security).",
        error=PrerequisiteError,
        key="start",
        summary=message,
        # An object that exists may still be unknown to the kubelet.
        tolerates=MINUTE,
    )


def _out_of_memory(pod: Object, container: Container) -> Diagnosis | None:
    if not container.failed or container.failed.reason != "OOMKilled":
        return None
    limit = pods.limit(pod, container.name, "memory")
    return Diagnosis(
        f"was killed: it used more than its memory ({limit or 'no limit'})",
        "Give it more `memory` in the cluster file: Ray alone takes about 1GiB, a head more.",
        summary=f"out of memory ({limit or 'no limit'})",
    )


def _crashed(pod: Object, container: Container, snapshot: Snapshot) -> Diagnosis | None:
    ended = container.ended or container.last
    if ended is None or not _ends_for_good(pod, container):
        return None
    if _ended_with_head(pod, ended, snapshot):
        return None

    # After a restart, the former run's log has the crash.
    former = container.ended is None
    summary = f"ended with exit code {ended.code}"
    if former:
        summary += ", Kubernetes starts it again and again"

    def log_tail() -> str:
        return _log_tail(ended.message or snapshot.log(pod, container.name, former=former))

    return Diagnosis(
        f"ended while it was starting (exit code {ended.code}); the end of its log:",
        RAY_IN_IMAGE,
        key=CRASH,
        summary=summary,
        log_tail=log_tail,
    )


def _ends_for_good(pod: Object, container: Container) -> bool:
    """Say whether a container ended for good, or too often to be chance."""
    if container.waiting == "CrashLoopBackOff" or container.restarts >= TRIES:
        return not (container.is_init and container.ended and container.ended.code == 0)
    return bool(container.failed and container.ended) and pods.phase(pod) == "Failed"


def _ended_with_head(pod: Object, ended: Ended, snapshot: Snapshot) -> bool:
    """Say whether a worker's container is older than the head.

    Ray ends a worker a minute after the worker lost its head.
    """
    if snapshot.head is None or pods.is_head(pod):
        return False
    return pods.seconds(ended.started) < pods.ray_started(snapshot.head)


def _log_tail(text: str) -> str:
    lines = []
    for line in wording.clean(text).splitlines():
        if line.strip():
            lines.append(f"    {line.rstrip()[:LINE_LENGTH]}")
    return "\n".join(lines[-TAIL_LINES:] or ["    (no output)"])
