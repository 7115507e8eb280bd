"""A registry's rejections, also as Docker and the kubelet report them.

One cause has several texts. Trainyard's own requests get the registry's JSON or
OpenSSL's texts; Docker and the kubelet report Go's. The texts were seen with
Docker 20.10, containerd 1.6 and docker-registry 2.8; the x509 texts are those
of Go's crypto/x509.
"""

from __future__ import annotations

import re
from typing import cast

from trainyard.diagnosis import Rule, explain
from trainyard.errors import OutsideError


class RegistryError(OutsideError):
    """A registry rejected a request, broke during it, or does not exist."""


class GoneError(RegistryError):
    """The registry gave no whole answer, or answered 5xx; a retry may help."""


class LoginError(RegistryError):
    """The registry asks for a login, or rejects the one that was sent."""


class CertificateError(RegistryError):
    """The registry's certificate is rejected, or only one side speaks TLS."""


class DamagedError(RegistryError):
    """The registry's content is not what was pushed."""


class MissingError(RegistryError):
    """The registry does not have the image."""


class FixedTagError(RegistryError):
    """The registry does not move a tag to another image."""


# RegistryApi's message about an answer of no registry begins with these words.
NOT_A_REGISTRY = "no registry answers like this"
# Messages leave out the HTML of a web page.
_PAGE = re.compile(r"[\s:\"]*<(?:!DOCTYPE|html)\b.*", re.IGNORECASE | re.DOTALL)

# The only table of causes of a failed push or pull. {registry} is the registry's address, {who} the
# owner of the login, {client} the program that pulls: Docker, or a node's kubelet. For the kubelet,
# the backend kuberay replaces hints by the rules' `key`.
RULES: tuple[Rule, ...] = (
    # Go: `error parsing HTTP 404 response body: invalid character '<' looking for beginning of
    # value: "<!DOCTYPE...`.
    Rule(
        rf"^{NOT_A_REGISTRY}|error parsing HTTP (404|405|501) response body: invalid character",
        "the server at {registry} is not a registry",
        "Is registry.address right, with its port? To start a registry of your own: trainyard "
        "registry.up",
        error=RegistryError,
    ),
    # Go: "x509: certificate has expired or is not yet valid"; OpenSSL: "certificate has expired".
    Rule(
        r"certificate has expired|certificate is not yet valid",
        "the certificate of registry {registry}, or of its CA, has expired or is not valid yet",
        "The registry's operator makes a new one. To replace one that Trainyard made: trainyard "
        "registry.down --purge (removes the images, too), then registry.up. If only this clock is "
        "wrong: timedatectl",
        key="expired",
        error=CertificateError,
    ),
    Rule(
        r"x509: certificate signed by unknown authority|x509: certificate is not authorized to sign",
        "{client} does not trust the CA of registry {registry}",
        "Make Docker trust it, on every host that pushes or pulls: trainyard registry.trust "
        "(where registry.up did not run, name a copy of its CA: registry.ca_file)",
        key="untrusted",
        error=CertificateError,
    ),
    # Docker's message. The cluster file says `insecure: true`; otherwise Trainyard's own request
    # would have failed first.
    Rule(
        r"server gave HTTP response to HTTPS client",
        "registry {registry} speaks plain HTTP, and {client} expects TLS",
        "Make Docker here accept that: trainyard registry.trust",
        key="plain_http",
        error=CertificateError,
    ),
    Rule(
        r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|UNKNOWN_PROTOCOL",
        "registry {registry} speaks plain HTTP, and TLS is expected",
        "If that is meant: `insecure: true` under `registry:` in the cluster file. Then tell "
        "Docker: trainyard registry.trust; for hosts of Kubernetes, see docs/registry.md.",
        error=CertificateError,
    ),
    Rule(
        r"x509:|CERTIFICATE_VERIFY_FAILED|tls: ",
        "the certificate of registry {registry} is not accepted",
        "Name its CA in the cluster file (registry.ca_file), and as registry.address exactly "
        "the name in the certificate: localhost and 127.0.0.1 are different names.",
        key="no_tls",
        error=CertificateError,
    ),
    # The registry's message about its own disk (distribution: the errno of a write, in JSON). The
    # next rule is about the engine's disk.
    Rule(
        r'"errors":.*(no space left on device|"Err":28\b|disk quota exceeded)'
        r"|DISKFULL|insufficient storage",
        "the disk of registry {registry} is full",
        "Make room there (its images: trainyard registry.status), then repeat the command: "
        "layers that arrived are not sent again.",
        error=RegistryError,
    ),
    Rule(
        r"no space left on device|disk quota exceeded",
        "the disk of the Docker host is full",
        "Make room there (docker system df; docker image prune), then repeat the command.",
        error=RegistryError,
    ),
    Rule(
        r"no match(ing manifest)? for|does not match the specified platform|exec format error",
        "the image is for another CPU architecture than the host's",
        "Build it for the host's (`build: {platform: linux/arm64}` or linux/amd64), and push it "
        "again.",
        error=RegistryError,
    ),
    Rule(
        r"verification failed|digest mismatch|unexpected commit digest|DIGEST_INVALID"
        r"|failed commit|invalid checksum",
        "the content of registry {registry} is damaged: it does not match its digest",
        # Another push alone repairs nothing: Docker asks whether a layer exists, not whether it is
        # intact.
        "No node runs the damaged image. The registry's disk lost data: remove the damaged part "
        "there (in docker/registry/v2/blobs/sha256 of its data), or all data (trainyard "
        "registry.down --purge), then push again.",
        error=DamagedError,
    ),
    # ECR: "cannot be overwritten because the repository is immutable"; Harbor: "configured as
    # immutable".
    Rule(
        r"(is|as) immutable|TAG_IMMUTABLE",
        "registry {registry} does not let a tag lead to another image",
        "Allow that for this repository there (ECR: tag mutability), or push a changed image.",
        error=FixedTagError,
    ),
    # Docker Hub and others give one answer for a missing and a private repository.
    Rule(
        r"pull access denied|insufficient_scope",
        "registry {registry} has no such image, or not for this login",
        "Is its name right? Log in if it is a private one: docker login {registry}",
        key="denied",
        error=MissingError,
    ),
    Rule(
        r"no basic auth credentials",
        "registry {registry} asks for a login, and none is known",
        "Name one in the cluster file (registry.username with password_env or password_file), or: "
        "docker login {registry}",
        key="login",
        error=LoginError,
    ),
    Rule(
        r"(?i)unauthorized|authentication required|authorization failed|\b401\b|token has expired",
        "registry {registry} refuses the login{who}",
        "Check username and password of `registry:` in the cluster file, or log in again: docker "
        "login {registry}",
        key="login",
        error=LoginError,
    ),
    Rule(
        r"(?i)denied|\b403\b|forbidden",
        "registry {registry} does not allow this login to do that",
        "Ask its operator for the right to push to this repository; in ECR the repository must "
        "exist.",
        key="login",
        error=LoginError,
    ),
    Rule(
        r"(?i)no such host|server misbehaving|connection refused|connection reset|broken pipe"
        r"|no route to host|name or service not known|name resolution|timed out|timeout"
        r"|deadline exceeded|\bEOF\b|server closed|disconnected|closed connection"
        r"|network is unreachable|closed network connection",
        "registry {registry} does not answer",
        "Start the registry (your own: trainyard registry.up), or repair the network to it; then "
        "repeat the command: layers that arrived are not sent again. Its state: trainyard "
        "registry.status",
        key="gone",
        error=GoneError,
    ),
    Rule(
        r"(?i)(manifest|name|blob)[ _](unknown|not known)|does not exist|not found",
        "registry {registry} does not hold that image",
        "Is its name right? To push one: trainyard image.push",
        error=MissingError,
    ),
    Rule(
        r"\b50[0-9]\b|unknown error",
        "registry {registry} broke while it answered",
        "Look at its log (docker logs of its container, if Trainyard made it), then repeat the command.",
        error=GoneError,
    ),
)


def refused(text: str, registry: str, *, doing: str, who: str = "") -> RegistryError:
    """Return the error for a failure's text, with the cause if a rule knows it.

    The error's `where` has the text. `who` is the owner of the login: " of ray
    from $PASSWORD".
    """
    excerpt = " ".join(_PAGE.sub("", text).split())[:500]
    cause = explain(text, RULES, registry=registry, who=who, client="Docker")
    if cause is None:
        return RegistryError(f"registry {registry} or Docker refused to {doing}", where=excerpt)
    return cast("RegistryError", cause.to_error(where=f"{doing}: {excerpt}"))
