"""Why the Kubernetes API refused, or did not answer, in words that say what to do."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from trainyard.errors import PrerequisiteError, TrainyardError
from trainyard.seams.kube.access import Access
from trainyard.seams.kube.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    MissingError,
    QuotaError,
    UnknownUserError,
)
from trainyard.seams.kube.types import Kind

# What RBAC says (k8s.io/apiserver, responsewriters.ForbiddenMessage); everything else with 403 is an admission rule.
_DENIED = re.compile(r'User "(?P<user>[^"]*)" cannot ')
_BUSY = (429, 502, 503, 504)


@dataclass(frozen=True)
class Doing:
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
        """Return it as roles name it, such as pods/log."""
        plural = self.kind.plural if self.kind else ""
        return f"{plural}/{self.part}" if self.part else plural


def refused(status: int, body: bytes, doing: Doing, access: Access) -> TrainyardError:
    """Return the error for an answer that is not what was asked for."""
    found = _status(body)
    if found is None and status == 404 and doing.kind and doing.kind.group:
        unknown = f"the cluster does not know {doing.kind.name} of {doing.kind.api}"
        return MissingError(unknown, where=f"{doing}: {access}")
    if found is None and status not in (401, *_BUSY):
        return KubeError(
            f"something else than a Kubernetes API answered {status}", where=f"{doing}: {access.server}: {_text(body)}"
        )
    said = str((found or {}).get("message") or _text(body))
    where = f"{doing}: {access}"
    if status == 401:
        return unknown_user(access, said)
    if status == 403:
        return _forbidden(found or {}, said, doing, access)
    if status in _BUSY:
        return GoneError(f"the Kubernetes API cannot answer now: {said}", where=where, hint="Repeat the command.")
    if status == 404:
        return MissingError(f"Kubernetes does not have it: {said}", where=where)
    if status == 409:
        return ConflictError(f"Kubernetes has it otherwise: {said}", where=where, hint="Repeat the command.")
    if status in (400, 422):
        return InvalidError(f"Kubernetes does not take it: {said}", where=where)
    return KubeError(f"the Kubernetes API answered {status}: {said}", where=where)


def unknown_user(access: Access, said: str) -> UnknownUserError:
    """Return the error of a login that the server does not accept."""
    again = f"{access.plugin} logs in: log in with it again" if access.plugin else "Fetch the kubeconfig again"
    return UnknownUserError(
        f"the Kubernetes API does not accept the login of user {access.user or '(nobody)'}: {said}",
        where=f"{access}, from {access.source}",
        hint=f"{again}, and repeat the command; tokens and certificates end.",
    )


def unreachable(error: Exception, access: Access, proxy: str | None) -> TrainyardError:
    """Return the error of a server that does not answer, or that cannot be trusted."""
    distrust = _cause(error, ssl.SSLCertVerificationError)
    if distrust:
        return PrerequisiteError(
            f"the Kubernetes API's certificate is not to be trusted: {distrust.verify_message}",
            where=f"{access}, from {access.source}",
            hint="Is the kubeconfig of another cluster, or from before this one was made anew? Fetch it again.",
        )
    return GoneError(
        f"the Kubernetes API does not answer: {_reason(error)}",
        where=f"{access}, through the proxy {_without_password(proxy)}" if proxy else str(access),
        hint="Is the cluster up, and in reach of this machine? `kubectl version` asks the same server.",
    )


def is_broken(error: Exception) -> bool:
    """Say whether a connection ended in the middle of a question."""
    from urllib3.exceptions import ProtocolError

    return isinstance(error, ProtocolError)


def _forbidden(status: Mapping[str, Any], said: str, doing: Doing, access: Access) -> TrainyardError:
    where = f"{doing}: {access}"
    denied = _DENIED.search(said)
    if denied:
        place = f"in namespace {doing.namespace}" if doing.namespace else "in the whole cluster"
        return ForbiddenError(
            f"Kubernetes does not let user {denied['user']} {doing.verb} {doing.resource} {place}",
            verb=doing.verb,
            kind=doing.kind.plural if doing.kind else "",
            namespace=doing.namespace,
            user=denied["user"],
            where=str(access),
            hint=f"Ask whoever runs the cluster for a role that may {doing.verb} {doing.resource}.",
        )
    causes = (status.get("details") or {}).get("causes") or []
    if "exceeded quota" in said:
        return QuotaError(
            f"the quota of namespace {doing.namespace} has no room: {said.partition('exceeded quota: ')[2]}",
            where=where,
            hint="Ask for less, or ask whoever runs the cluster for a larger quota.",
        )
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return ConflictError(
            f"namespace {doing.namespace} is being removed", where=where, hint="Repeat the command when it is gone."
        )
    return InvalidError(f"Kubernetes does not allow it: {said}", where=where)


def _status(body: bytes) -> Mapping[str, Any] | None:
    """Return the API's own description of what is wrong (meta/v1 Status)."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None


def _reason(error: Exception) -> str:
    deepest: BaseException = error
    while deepest.__cause__ or deepest.__context__:
        deepest = deepest.__cause__ or deepest.__context__ or deepest
    if isinstance(deepest, TimeoutError) or "timed out" in str(error):
        return "it took too long"
    text = (deepest.strerror if isinstance(deepest, OSError) else None) or str(error)
    return text or type(error).__name__


def _cause(
    error: BaseException | None, kind: type[ssl.SSLCertVerificationError]
) -> ssl.SSLCertVerificationError | None:
    while error is not None:
        if isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
    return None


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _text(body: bytes) -> str:
    lines = body.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else "(nothing)"
