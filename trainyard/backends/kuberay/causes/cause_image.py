"""Why a host cannot have an image, from what its kubelet and containerd say; pure.

The texts were seen with containerd 1.6 and Kubernetes 1.34, or read in containerd's remotes/docker and in crypto/x509.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.backends.kuberay.causes import event
from trainyard.backends.kuberay.causes.facts import Cause
from trainyard.backends.kuberay.pod import PULL_BACK_OFF, PULL_ERROR, Container

# What a container waits for (kubernetes/pkg/kubelet/images/types.go).
INVALID = "InvalidImageName"
NEVER = "ErrImageNeverPull"
REASONS = (
    PULL_BACK_OFF,
    PULL_ERROR,
    INVALID,
    NEVER,
    "RegistryUnavailable",
    "ErrImageInspect",
    "SignatureValidationFailed",
)
# The kubelet tries again some 10 s after a first failure, and says ImagePullBackOff from then on.
FIRST_ERROR_SECONDS = 6.0
# A busy kubelet waits a second for a Secret and then pulls without it; it tries again 10 s later, and 20 s after that.
WITHOUT_LOGIN = "FailedToRetrieveImagePullSecret"
WITHOUT_LOGIN_SECONDS = 45.0
# Seen once: refused (401), though the Secret was there before the pod. One more try tells.
LOGIN_SECONDS = 25.0
# Long enough for all nodes to say the same.
TOGETHER_SECONDS = 2.0


@dataclass(frozen=True)
class _Refusal:
    """One way not to get an image. {registry} is where it is; hosts.toml is read at each pull (bed-notes.md)."""

    pattern: str
    why: str
    hint: str
    is_login: bool = False


_TRUST = (
    "Tell containerd on every node how to speak to it: /etc/containerd/certs.d/{registry}/hosts.toml "
    "(MicroK8s: /var/snap/microk8s/current/args/certs.d/{registry}/hosts.toml), with "
)
# The first that matches counts: the particular before the general.
_REFUSALS = (
    _Refusal(
        r"server gave HTTP response to HTTPS client",
        "registry {registry} speaks plain HTTP, and the node expects TLS",
        _TRUST + 'server = "http://{registry}".',
    ),
    _Refusal(
        r"HTTP request to an HTTPS server|HTTP request was sent to HTTPS port",
        "registry {registry} speaks TLS, and the node expects plain HTTP",
        _TRUST + 'server = "https://{registry}".',
    ),
    _Refusal(
        r"certificate has expired|certificate is not yet valid",
        "the certificate of registry {registry} has expired or is not valid yet",
        "Renew it (one of ours: invoke registry.up), or put the node's clock right.",
    ),
    _Refusal(
        r"x509: (certificate is valid for|cannot validate certificate|certificate relies on legacy)",
        "the certificate of registry {registry} is for another address",
        "Pull by the name that the certificate is for, or make a certificate for this address.",
    ),
    _Refusal(
        r"x509:|tls: ",
        "the node does not trust the certificate of registry {registry}",
        _TRUST + "its CA as `ca`.",
    ),
    _Refusal(r"no space left on device", "the node's disk is full", "Make room on it: crictl rmi --prune"),
    _Refusal(
        r"no match for platform|does not match the specified platform|exec format error",
        "the image is for another kind of processor than the node's",
        "Build it for that one (`build: {{platform: linux/arm64}}` or linux/amd64), and push it again.",
    ),
    _Refusal(
        r"toomanyrequests|\b429\b",
        "registry {registry} allows no more pulls for now",
        "Log in there (registry.username in the cluster file), or copy the image to a registry of your own.",
    ),
    # Also what registries say that do not tell a missing repository from a private one.
    _Refusal(
        r"pull access denied|insufficient_scope|authorization failed",
        "registry {registry} has no such image, or not for this login",
        "Is its name right? If it is a private one, name the login in the cluster file: registry.username with "
        "password_env, or kuberay.pull_secrets.",
        is_login=True,
    ),
    _Refusal(
        r"\b401\b|\b403\b|[Uu]nauthorized|UNAUTHORIZED|no basic auth credentials|authentication required|[Ff]orbidden",
        "registry {registry} refuses the login, or asks for one",
        "Name it in the cluster file: registry.username with password_env, or kuberay.pull_secrets.",
        is_login=True,
    ),
    _Refusal(
        r"no such host|server misbehaving|connection refused|connection reset|no route to host|i/o timeout|"
        r"handshake timeout|deadline exceeded|network is unreachable|\bEOF\b|Client\.Timeout|closed network connection",
        "registry {registry} does not answer the node",
        "Is it up (one of ours: invoke registry.status), and can this node reach it by that address?",
    ),
    _Refusal(
        r": not found|manifest unknown|MANIFEST_UNKNOWN|NAME_UNKNOWN|does not exist|name unknown",
        "registry {registry} has no such image",
        "Is its name right? One of ours gets there by: invoke image.push",
    ),
    _Refusal(
        r"unexpected commit digest|failed commit|verification failed|unexpected size|invalid checksum|gzip: invalid",
        "what registry {registry} holds is damaged: it is not what its digest says",
        "Push the image again; if that does not help, remove it from the registry first.",
    ),
    _Refusal(
        r"\b50[0-9]\b|Internal Server Error|Service Unavailable|Bad Gateway",
        "registry {registry} broke while it answered",
        "Look at its log, then repeat the command.",
    ),
)
_UNKNOWN = _Refusal("", "registry {registry} or the node refuses", "")
_WORDS = re.compile(r'^(?:Back-off pulling image "[^"]*"|Failed to pull image "[^"]*")(?:: )?')


def cause(container: Container, image: str, events: Sequence[event.Event], *, has_login: bool) -> Cause | None:
    """Return why a container's image cannot be had, None if that is not what it waits for.

    `events` are those of its pod: before Kubernetes 1.31 only they say why a pull failed. `has_login`: its pod has
    Secrets to pull with.
    """
    if container.waiting not in REASONS:
        return None
    if container.waiting == INVALID:
        correct = "Correct `image:` in the cluster file."
        return _named(image, "that is no image reference", correct, container.message, patience=TOGETHER_SECONDS)
    if container.waiting == NEVER:
        return _named(image, "the node does not have it, and may not pull it", "Load it there.", container.message)
    said = _said(container, events)
    registry = registry_of(image)
    refusal = next((one for one in _REFUSALS if re.search(one.pattern, said)), _UNKNOWN)
    why, hint = refusal.why.format(registry=registry), refusal.hint.format(registry=registry) or None
    if event.newest(events, WITHOUT_LOGIN):
        return _named(image, why, hint, said, patience=WITHOUT_LOGIN_SECONDS)
    if has_login and refusal.is_login:
        return _named(image, why, hint, said, patience=LOGIN_SECONDS)
    return _named(image, why, hint, said, patience=FIRST_ERROR_SECONDS if container.waiting == PULL_ERROR else 0.0)


def registry_of(image: str) -> str:
    """Return the registry that an image reference names, docker.io if it names none."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _said(container: Container, events: Sequence[event.Event]) -> str:
    said = _WORDS.sub("", container.message)
    if said:
        return said
    pulls = [one for one in events if event.reason(one) == "Failed" and "pull" in event.message(one)]
    return _WORDS.sub("", event.message(pulls[-1])) if pulls else container.message


def _named(image: str, why: str, hint: str | None, said: str, *, patience: float = 0.0) -> Cause:
    return Cause(
        what=f"cannot have the image {image}: {why}",
        brief=f"cannot pull its image: {why}",
        about="image",
        hint=hint,
        said=said,
        patience=patience,
    )
