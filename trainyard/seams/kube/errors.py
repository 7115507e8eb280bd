"""What the Kubernetes API refuses, how it fails, and what helps."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams.kube.types import Kind

if TYPE_CHECKING:
    from trainyard.seams.kube.config import Access


class KubeError(OutsideError):
    """The Kubernetes API refused or broke."""


class GoneError(KubeError):
    """Nobody answers, the connection broke, or the API server is only just starting."""


class InvalidError(KubeError):
    """The API does not take what we sent: a wrong field, or an admission rule that it breaks."""


class ConflictError(KubeError):
    """Somebody else changed or made the object meanwhile, or its namespace is being removed."""


class MissingError(KubeError):
    """An object that should be there is not."""


class QuotaError(PrerequisiteError):
    """The namespace's quota has no room for it."""


class UnknownUserError(PrerequisiteError):
    """The API server does not know who we are (any more)."""


class ForbiddenError(PrerequisiteError):
    """The user may not do that."""


@dataclass(frozen=True)
class Request:
    """What was asked of the API: a verb of RBAC, and on what. `part` is a subresource, such as log."""

    verb: str
    kind: Kind | None = None
    name: str = ""
    namespace: str | None = None
    part: str = ""

    def __str__(self) -> str:
        if self.kind is None:
            return self.verb
        words = [self.verb, self.kind.name if self.name else self.kind.plural]
        words += [self.name] if self.name else []
        words += [f"({self.part})"] if self.part else []
        words += [f"in namespace {self.namespace}"] if self.namespace and self.kind.namespaced else []
        return " ".join(words)

    @property
    def resource(self) -> str:
        plural = self.kind.plural if self.kind else ""
        return f"{plural}/{self.part}" if self.part else plural


_REPEAT = "Repeat the command."
_BUSY = ("429", "502", "503", "504")
# Read against the message of the API's answer; the reason is the HTTP status, or what stands for one.
RULES = (
    Rule(
        "",
        "the Kubernetes API does not accept the login of user {user}: {detail}",
        "{again}, and repeat the command; tokens and certificates end.",
        error=UnknownUserError,
        reasons=("401",),
    ),
    # RBAC's words (k8s.io/apiserver, responsewriters.ForbiddenMessage); everything else with 403 is an admission rule.
    Rule(
        r'User "(?P<user>[^"]*)" cannot ',
        "Kubernetes does not let user {user} {verb} {resource} {scope}",
        "Ask whoever runs the cluster for a role that may {verb} {resource}.",
        error=ForbiddenError,
        reasons=("403",),
    ),
    Rule(
        "exceeded quota: (?P<quota>.*)",
        "the quota of namespace {namespace} has no room: {quota}",
        "Ask for less, or ask whoever runs the cluster for a larger quota.",
        error=QuotaError,
        reasons=("403",),
    ),
    Rule(
        "because it is being terminated",
        "namespace {namespace} is being removed",
        "Repeat the command when it is gone.",
        error=ConflictError,
        reasons=("403",),
    ),
    Rule("", "Kubernetes does not allow it: {detail}", error=InvalidError, reasons=("403",)),
    Rule("", "the Kubernetes API cannot answer now: {detail}", _REPEAT, error=GoneError, reasons=_BUSY),
    Rule("", "the cluster does not know {kind}", error=MissingError, reasons=("unknown kind",)),
    Rule("", "Kubernetes does not have it: {detail}", error=MissingError, reasons=("404",)),
    Rule("", "Kubernetes has it otherwise: {detail}", _REPEAT, error=ConflictError, reasons=("409",)),
    Rule("", "Kubernetes does not take it: {detail}", error=InvalidError, reasons=("400", "422")),
    Rule("", "something else than a Kubernetes API answered {status}", error=KubeError, reasons=("foreign",)),
    Rule("", "the Kubernetes API answered {status}: {detail}", error=KubeError),
)
# Read against "EXCEPTION: its text"; {detail} is that text alone.
UNREACHABLE = (
    Rule(
        "SSLCertVerificationError: (?P<why>.*)",
        "the Kubernetes API's certificate is not to be trusted: {why}",
        "Is the kubeconfig of another cluster, or from before this one was made anew? Fetch it again.",
        error=PrerequisiteError,
        key="source",
    ),
    Rule(
        "",
        "the Kubernetes API does not answer: {detail}",
        "Is the cluster up, and in reach of this machine? `kubectl version` asks the same server.",
        error=GoneError,
    ),
)


def refused(status: int, body: bytes, request: Request, access: Access) -> TrainyardError:
    """Return the error for an answer that is not what was asked for."""
    document = _status(body)
    text = str((document or {}).get("message") or _last_line(body))
    reason = str(status)
    if document is None and status == 404 and request.kind and request.kind.group:
        reason = "unknown kind"
    elif document is None and reason not in ("401", *_BUSY):
        reason = "foreign"
    words = {
        "user": access.user or "(nobody)",
        "verb": request.verb,
        "resource": request.resource,
        "scope": f"in namespace {request.namespace}" if request.namespace else "in the whole cluster",
        "namespace": request.namespace or "",
        "kind": f"{request.kind.name} of {request.kind.api}" if request.kind else "",
        "again": f"{access.plugin} logs in: log in with it again" if access.plugin else "Fetch the kubeconfig again",
    }
    cause = _explained(text, RULES, reason=reason, status=str(status), detail=text, **words)
    where = f"{request}: {access.server}: {text}" if reason == "foreign" else f"{request}: {access}"
    return cause.to_error(f"{access}, from {access.source}" if status == 401 else where)


def unreachable(error: Exception, access: Access, proxy: str | None) -> TrainyardError:
    """Return the error of a server that does not answer, or that cannot be trusted."""
    deepest: BaseException = error
    while deepest.__cause__ or deepest.__context__:
        deepest = deepest.__cause__ or deepest.__context__ or deepest
    text = (deepest.strerror if isinstance(deepest, OSError) else None) or str(error) or type(error).__name__
    if isinstance(deepest, TimeoutError) or "timed out" in str(error):
        text = "it took too long"
    if isinstance(deepest, ssl.SSLCertVerificationError):
        text = deepest.verify_message
    cause = _explained(f"{type(deepest).__name__}: {text}", UNREACHABLE, detail=text)
    if cause.key:
        return cause.to_error(f"{access}, from {access.source}")
    return cause.to_error(f"{access}, through the proxy {_without_password(proxy)}" if proxy else str(access))


def _explained(text: str, rules: tuple[Rule, ...], *, reason: str = "", **words: str) -> Diagnosis:
    """Return the cause; the last rule of each table fits everything."""
    return cast(Diagnosis, explain(text, rules, reason=reason, **words))


def _status(body: bytes) -> Mapping[str, Any] | None:
    """Return the API's own description of what is wrong (meta/v1 Status)."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _last_line(body: bytes) -> str:
    lines = body.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else "(nothing)"
