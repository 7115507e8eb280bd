"""Errors of the Kubernetes API, and the hints for them."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, cast

from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError

if TYPE_CHECKING:
    from trainyard.seams.kube.config import Access


class KubeError(OutsideError):
    """The Kubernetes API rejected a request or broke."""


class ApiUnreachableError(KubeError):
    """The API server gave no answer or is busy, or the connection broke."""


class InvalidError(KubeError):
    """The API rejects an object for a wrong field or an admission rule."""


class ConflictError(KubeError):
    """The object exists, or was changed meanwhile."""


class ForbiddenError(PrerequisiteError):
    """The user may not do that."""


_REPEAT = "Repeat the command."
_BUSY = ("429", "502", "503", "504")
# Patterns are searched in the message of the API's answer. `reasons` are HTTP statuses, or
# "foreign" for an answer of another server.
RULES = (
    Rule(
        "",
        "the Kubernetes API does not accept the login of user {user}: {detail}",
        "Log in again, or fetch the kubeconfig again: tokens and certificates expire. To try the "
        "login: kubectl get pods",
        error=PrerequisiteError,
        reasons=("401",),
    ),
    # RBAC's words (k8s.io/apiserver, responsewriters.ForbiddenMessage); any other 403 is an
    # admission rule.
    Rule(
        r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) (?:resource|path) "(?P<resource>[^"]*)"'
        r'(?:.*(?P<scope> in the namespace "[^"]*"| at the cluster scope))?',
        "Kubernetes does not let user {user} {verb} {resource}{scope}",
        "Ask the cluster's administrator for a role that may {verb} {resource}.",
        error=ForbiddenError,
        reasons=("403",),
    ),
    Rule(
        "exceeded quota: (?P<quota>.*)",
        "the namespace's quota has no room: {quota}",
        "Ask for less, or ask the cluster's administrator for a larger quota.",
        error=PrerequisiteError,
        reasons=("403",),
    ),
    Rule(
        "", "Kubernetes does not allow the request: {detail}", error=InvalidError, reasons=("403",)
    ),
    Rule(
        "",
        "the Kubernetes API cannot answer now: {detail}",
        _REPEAT,
        error=ApiUnreachableError,
        reasons=_BUSY,
    ),
    Rule("", "Kubernetes does not have the object: {detail}", error=KubeError, reasons=("404",)),
    Rule(
        "",
        "the object exists or was changed meanwhile: {detail}",
        _REPEAT,
        error=ConflictError,
        reasons=("409",),
    ),
    Rule("", "Kubernetes rejects the object: {detail}", error=InvalidError, reasons=("400", "422")),
    Rule(
        "",
        "a server that is no Kubernetes API answered {status}: {detail}",
        error=KubeError,
        reasons=("foreign",),
    ),
    Rule("", "the Kubernetes API answered {status}: {detail}", error=KubeError),
)


def refused(status: int, body: bytes, request: str, access: Access) -> TrainyardError:
    """Return the error for an unexpected answer to `request` (METHOD PATH)."""
    text = _message(body)
    known = text is not None or str(status) in ("401", "404", *_BUSY)
    reason = "foreign"
    if known:
        reason = str(status)

    detail = text or body.decode(errors="replace").strip()[-300:] or "(nothing)"
    words = {"user": access.user or "(none)", "status": str(status), "detail": detail}
    # The last rule matches every text.
    cause = cast(Diagnosis, explain(detail, RULES, reason=reason, **words))
    if status == 401:
        return cause.to_error(f"{access}, from {access.source}")
    return cause.to_error(f"{request}: {access}")


def unreachable(error: Exception, access: Access) -> TrainyardError:
    """Return the error of a server that is silent or cannot be trusted."""
    deepest: BaseException = error
    while deepest.__cause__ or deepest.__context__:
        deepest = deepest.__cause__ or deepest.__context__ or deepest

    if isinstance(deepest, ssl.SSLCertVerificationError):
        return PrerequisiteError(
            f"the Kubernetes API's certificate is not trusted: {deepest.verify_message}",
            where=f"{access}, from {access.source}",
            hint="Is the kubeconfig another cluster's, or too old? Fetch the kubeconfig again.",
        )

    text = str(error) or type(error).__name__
    if isinstance(deepest, OSError) and deepest.strerror:
        text = deepest.strerror
    if isinstance(deepest, TimeoutError) or "timed out" in str(error):
        text = "it took too long"
    return ApiUnreachableError(
        f"the Kubernetes API does not answer: {text}",
        where=str(access),
        hint="Is the cluster up, and can this machine reach it? `kubectl version` asks the same "
        "server.",
    )


def _message(body: bytes) -> str | None:
    """Return the message of an API error (meta/v1 Status); None for others."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    if isinstance(document, dict) and document.get("kind") == "Status":
        return str(document.get("message") or "")
    return None
