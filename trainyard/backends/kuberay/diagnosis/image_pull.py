"""Why a host cannot have an image, from what its kubelet and containerd say; pure.

What registries say stands in trainyard/seams/registry/errors.py; here is what only hosts say, and what helps there.
The texts were seen with containerd 1.6 and Kubernetes 1.34, or read in containerd's remotes/docker and in crypto/x509.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from trainyard.backends.kuberay import events
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.pods import Container, Object
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import OutsideError
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
        tolerates=MINUTE if events.newest(own, WITHOUT_LOGIN) else tolerates,
    )


def registry_of(image: str) -> str:
    """Return the registry that an image reference names, docker.io if it names none."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _raw(container: Container, own: Sequence[Object]) -> str:
    raw = _BEGINNING.sub("", container.message)
    if raw:
        return raw
    pulls = [
        message for event in own if events.reason(event) == "Failed" and "pull" in (message := events.message(event))
    ]
    return _BEGINNING.sub("", pulls[-1]) if pulls else container.message
