"""What a registry, or the Docker engine that speaks to it, says when it refuses: in words that say what to do.

Both say the same things differently: we hear OpenSSL and the registry's JSON, the engine is written in Go. The texts
were seen with Docker 20.10 and docker-registry 2.8; the engine's x509 texts are those of Go's crypto/x509.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainyard.errors import OutsideError


class RegistryError(OutsideError):
    """A registry refused, broke, or is not there. `transient`: it may work when tried again."""

    transient = False


class GoneError(RegistryError):
    """Nobody answers, or the connection broke."""

    transient = True


class BusyError(RegistryError):
    """The registry answers with an error of its own that may pass."""

    transient = True


class LoginError(RegistryError):
    """The registry wants another login, or does not let this one in."""


class CertificateError(RegistryError):
    """The registry's certificate, or that it has one, is not what was expected."""


class FullError(RegistryError):
    """A disk is full."""


class DamagedError(RegistryError):
    """What the registry holds is not what was pushed."""


class MissingError(RegistryError):
    """The registry does not hold what was asked for."""


class NoRegistryError(RegistryError):
    """Somebody answers, and it is no registry."""


class FixedTagError(RegistryError):
    """The registry does not let a tag lead to anything else."""


@dataclass(frozen=True)
class Refusal:
    """One way to be refused. In `what` and `hint`, {registry} is its address, {who} whose login was used."""

    kind: type[RegistryError]
    pattern: str
    what: str
    hint: str


_RENEW = (
    "`invoke registry.up` makes a new certificate for a registry of ours; else tell whoever runs it. "
    "If only this clock is wrong: timedatectl"
)
_TRUST_HERE = "Name its CA in the cluster file: registry.ca_file"
_TRUST_DOCKER = "Make Docker trust it, on every host that pushes or pulls: invoke registry.trust"
_LOGIN = "Check username and password of `registry:` in the cluster file, or log in again: docker login {registry}"

# Another push alone mends nothing: Docker asks whether a layer is there, not whether it is whole.
MEND = (
    "Nothing uses it. The registry's disk lost data: remove the damaged part there (its data has it in "
    "docker/registry/v2/blobs/sha256), or all of it (invoke registry.down --purge), then push again."
)

# How RegistryApi begins its words about an answer that no registry gives.
NOT_A_REGISTRY = "no registry answers like this"
# A web page: nobody wants to read its source.
_PAGE = re.compile(r"[\s:\"]*<(?:!DOCTYPE|html)\b.*", re.IGNORECASE | re.DOTALL)

# The first that matches counts: the particular before the general.
REFUSALS: tuple[Refusal, ...] = (
    # Go: `error parsing HTTP 404 response body: invalid character '<' looking for beginning of value: "<!DOCTYPE...`.
    Refusal(
        NoRegistryError,
        rf"^{NOT_A_REGISTRY}|error parsing HTTP (404|405|501) response body: invalid character",
        "what answers at {registry} is not a registry",
        "Is registry.address right, with its port? One of our own is started by: invoke registry.up",
    ),
    # Go: "x509: certificate has expired or is not yet valid"; OpenSSL: "certificate has expired".
    Refusal(
        CertificateError,
        r"certificate has expired|certificate is not yet valid",
        "the certificate of registry {registry}, or of its CA, has expired or is not valid yet",
        _RENEW,
    ),
    Refusal(
        CertificateError,
        r"x509: certificate signed by unknown authority|x509: certificate is not authorized to sign",
        "Docker does not trust the CA of registry {registry}",
        _TRUST_DOCKER,
    ),
    Refusal(
        CertificateError,
        r"self[- ]signed certificate|unable to get (local )?issuer certificate|unable to verify the first certificate",
        "the certificate of registry {registry} is from a CA that is not trusted here",
        _TRUST_HERE,
    ),
    Refusal(
        CertificateError,
        r"x509: (certificate is valid for|cannot validate certificate for|certificate is not valid for)"
        r"|Hostname mismatch|IP address mismatch|doesn't match|x509: certificate relies on legacy Common Name",
        "the certificate of registry {registry} is for another address",
        "Give `registry.address` the name or address that the certificate is for, or make one for this address.",
    ),
    Refusal(
        CertificateError,
        r"server gave HTTP response to HTTPS client",
        "registry {registry} speaks plain HTTP, and Docker expects TLS",
        "If that is meant: `insecure: true` under `registry:`, and then, on every host: invoke registry.trust",
    ),
    Refusal(
        CertificateError,
        r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|UNKNOWN_PROTOCOL|HTTP_REQUEST",
        "registry {registry} speaks plain HTTP, and the cluster file expects TLS",
        "If that is meant: `insecure: true` under `registry:`, and then, on every host: invoke registry.trust",
    ),
    Refusal(
        CertificateError,
        r"HTTP request to an HTTPS server|HTTP request was sent to HTTPS port",
        "registry {registry} speaks TLS, and the cluster file says `insecure: true`",
        "Remove `insecure: true` from `registry:`; name the CA with registry.ca_file unless it is a public one.",
    ),
    Refusal(CertificateError, r"x509:|CERTIFICATE_VERIFY_FAILED|tls: ", "no TLS with registry {registry}", _TRUST_HERE),
    # The registry about itself (distribution: the errno of a write, in JSON), or the engine about its own disk.
    Refusal(
        FullError,
        r'"errors":.*(no space left on device|"Err":28\b|disk quota exceeded)|DISKFULL|insufficient storage',
        "the disk of registry {registry} is full",
        "Make room there (its images: invoke registry.status), then repeat the command: layers that are there are not "
        "sent again.",
    ),
    Refusal(
        FullError,
        r"no space left on device|disk quota exceeded",
        "the disk of the Docker host is full",
        "Make room there (docker system df; docker image prune), then repeat the command.",
    ),
    Refusal(
        DamagedError,
        r"verification failed for digest|digest mismatch|does not match (the )?digest|unexpected commit digest|"
        r"DIGEST_INVALID|failed commit on ref|manifest verification failed|image verification failed|"
        r"invalid checksum|gzip: invalid|unexpected EOF.*layer",
        "what registry {registry} holds is damaged: it is not what its digest says",
        MEND,
    ),
    # ECR: "cannot be overwritten because the repository is immutable"; Harbor: "configured as immutable".
    Refusal(
        FixedTagError,
        r"is immutable|as immutable|immutable tag|TAG_IMMUTABLE",
        "registry {registry} does not let a tag lead to another image",
        "Allow that for this repository there (ECR: tag mutability), or push a changed image.",
    ),
    # Docker Hub, and what follows it, do not tell a missing repository from a private one.
    Refusal(
        MissingError,
        r"pull access denied",
        "registry {registry} has no such image, or not for this login",
        "Is its name right? Log in if it is a private one: docker login {registry}",
    ),
    Refusal(
        LoginError,
        r"no basic auth credentials",
        "registry {registry} asks for a login, and none is known",
        "Name one in the cluster file (registry.username with password_env or password_file), or: "
        "docker login {registry}",
    ),
    Refusal(
        LoginError,
        r"unauthorized|UNAUTHORIZED|authentication required|incorrect username or password|authorization failed|"
        r"\b401\b|token has expired",
        "registry {registry} refuses the login{who}",
        _LOGIN,
    ),
    Refusal(
        LoginError,
        r"denied|DENIED|\b403\b|access to the resource",
        "registry {registry} does not allow this login to do that",
        "Ask whoever runs it for the right to push to this repository; in ECR the repository must exist.",
    ),
    Refusal(
        MissingError,
        r"manifest unknown|manifest for .* not found|MANIFEST_UNKNOWN|NAME_UNKNOWN|repository name not known|"
        r"does not exist|BLOB_UNKNOWN|blob unknown",
        "registry {registry} does not hold that image",
        "Is its name right? An image of ours gets there by: invoke image.push",
    ),
    Refusal(
        GoneError,
        r"connection refused|Connection refused|connection reset|Connection reset|broken pipe|no route to host|"
        r"No route to host|no such host|Name or service not known|nodename nor servname|name resolution|i/o timeout|"
        r"timed out|Timeout|deadline exceeded|\bEOF\b|server closed|Server disconnected|"
        r"peer closed connection|network is unreachable|Network is unreachable|use of closed network connection",
        "registry {registry} does not answer",
        "Start it (one of our own: invoke registry.up), or the way to it; then repeat the command: layers that are "
        "there are not sent again. Its state: invoke registry.status",
    ),
    Refusal(
        BusyError,
        r"\b50[0-9]\b|\b429\b|Internal Server Error|toomanyrequests|Service Unavailable|Bad Gateway|unknown error",
        "registry {registry} broke while it answered",
        "Look at its log (docker logs of its container, if it is ours), then repeat the command.",
    ),
)


def refused(text: str, registry: str, *, doing: str, who: str = "") -> RegistryError:
    """Return the error for what was said, kept word by word in `where`; unknown texts get no invented cause.

    `who` is whose login was used: " of ray from $PASSWORD".
    """
    said = " ".join(_PAGE.sub("", text).split())[:500]
    for refusal in REFUSALS:
        if re.search(refusal.pattern, text):
            return refusal.kind(
                refusal.what.format(registry=registry, who=who),
                where=f"{doing}: {said}",
                hint=refusal.hint.format(registry=registry, who=who),
            )
    return RegistryError(f"registry {registry} or Docker refused to {doing}", where=said)
