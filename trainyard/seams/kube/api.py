"""The Kubernetes API: objects by kind and name, what we may do, and what pods print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.seams.kube import streams
from trainyard.seams.kube.config import Access
from trainyard.seams.kube.errors import GoneError, InvalidError, KubeError, MissingError, Request
from trainyard.seams.kube.transport import Transport
from trainyard.seams.kube.types import POD, Kind, Object
from trainyard.seams.programs import Ran

# Who the API server says changed what (meta/v1, managedFields).
FIELD_MANAGER = "trainyard"
PAGE = 500
REVIEW = Kind("authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False)


class Kube:
    """One Kubernetes cluster as one user sees it; threads may share it.

    Every call has a deadline. All raise GoneError when nobody answers, ForbiddenError, UnknownUserError, and KubeError
    for whatever else the API refuses; an object that is not there is None, False or nothing where that is an answer.
    """

    def __init__(self, access: Access, environ: Mapping[str, str]) -> None:
        self.access = access
        self.context = access.context
        self.server = access.server
        self.namespace = access.namespace
        self.user = access.user
        self.place = access.place
        self.transport = Transport(access, environ)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        request = Request("get", kind, name, namespace)
        answer = self.transport.send("GET", kind.path(namespace, name), request, accept=(404,))
        return None if answer.status == 404 else _object(answer.json())

    def list(self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = "") -> list[Object]:
        """Return the objects of a namespace, or of all; none of a kind that the cluster does not know."""
        request = Request("list", kind, namespace=namespace)
        found: list[Object] = []
        params = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields}
        params = {key: value for key, value in params.items() if value}
        while True:
            answer = self.transport.send("GET", kind.path(namespace), request, params=params, accept=(404, 410))
            if answer.status == 404:
                return []
            if answer.status == 410:
                # The rest of a long list is too old to be continued: all of it at once, then.
                found, params = [], {key: value for key, value in params.items() if key not in ("limit", "continue")}
                continue
            page = _object(answer.json())
            # The API leaves out of each what all have in common.
            found += [{"apiVersion": kind.api, "kind": kind.name, **item} for item in page.get("items") or ()]
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            params = {**params, "continue": following}

    def create(self, kind: Kind, body: Object, *, namespace: str | None = None, dry_run: bool = False) -> Object:
        """Make an object; with `dry_run` it is only judged, by all of admission, and nothing is kept.

        Raises ConflictError if it is there, MissingError if its namespace is not.
        """
        request = Request("create", kind, _name(body), namespace)
        params = {"dryRun": "All"} if dry_run else None
        return _object(self.transport.send("POST", kind.path(namespace), request, params=params, body=body).json())

    def apply(
        self,
        kind: Kind,
        body: Object,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        force: bool = True,
    ) -> Object:
        """Make an object say what `body` says, and return what it is then; what others say of it stays.

        (Server-side apply.) With `dry_run` it is checked and completed by the API, and nothing is kept.
        """
        params = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        if dry_run:
            params["dryRun"] = "All"
        answer = self.transport.send(
            "PATCH",
            kind.path(namespace, _name(body)),
            Request("patch", kind, _name(body), namespace),
            params=params,
            body={"apiVersion": kind.api, "kind": kind.name, **body},
            content_type="application/apply-patch+yaml",
        )
        return _object(answer.json())

    def patch(self, kind: Kind, name: str, merge: Object, *, namespace: str | None = None) -> Object:
        """Change fields of an object; a field that is None is removed (JSON merge patch). Raises MissingError."""
        answer = self.transport.send(
            "PATCH",
            kind.path(namespace, name),
            Request("patch", kind, name, namespace),
            params={"fieldManager": FIELD_MANAGER},
            body=merge,
            content_type="application/merge-patch+json",
        )
        return _object(answer.json())

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        seconds: int | None = None,
        uid: str | None = None,
    ) -> bool:
        """Ask for the removal of an object; False if it is not there, or is another one than `uid`.

        `seconds` is what a pod may take to end. It is gone only when `get` says so.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if seconds is not None:
            options["gracePeriodSeconds"] = seconds
        if uid:
            options["preconditions"] = {"uid": uid}
        accepted = (404, 409) if uid else (404,)
        request = Request("delete", kind, name, namespace)
        answer = self.transport.send("DELETE", kind.path(namespace, name), request, body=options, accept=accepted)
        return answer.status < 400

    def may(
        self, verb: str, kind: Kind, *, namespace: str | None = None, subresource: str = "", name: str = ""
    ) -> bool:
        """Say whether we may do that; no namespace: in all of them."""
        attributes = {
            "verb": verb,
            "group": kind.group,
            "resource": kind.plural,
            "subresource": subresource,
            "name": name,
            "namespace": (namespace or "") if kind.namespaced else "",
        }
        review = {
            "apiVersion": REVIEW.api,
            "kind": REVIEW.name,
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        return self.create(REVIEW, review)["status"].get("allowed") is True

    def version(self) -> str:
        return str(_object(self.transport.send("GET", "/version", Request("ask for the version")).json())["gitVersion"])

    def answers(self) -> bool:
        """Say whether the server answers at all; whatever it says will do."""
        try:
            self.version()
        except TrainyardError as error:
            return not isinstance(error, GoneError)
        return True

    def serves(self, kind: Kind) -> bool:
        """Say whether the cluster knows this kind, in this version."""
        answer = self.transport.send("GET", kind.root, Request(f"ask about {kind.api}"), accept=(404,))
        if answer.status == 404:
            return False
        return any(served["name"] == kind.plural for served in _object(answer.json()).get("resources") or ())

    def logs(
        self, pod: str, *, namespace: str, container: str, previous: bool = False, lines: int | None = None
    ) -> str:
        """Return what a container printed, or its last lines; "" if it did not start yet, or has no predecessor."""
        return self._log(pod, namespace, container, previous, lines)

    def printed(
        self,
        pod: str,
        *,
        namespace: str,
        container: str,
        previous: bool = False,
        since: str = "",
        lines: int | None = None,
    ) -> tuple[tuple[str, str], ...]:
        """Return (time, line) of what a container printed after a time that was returned before; () as in `logs`."""
        printed = self._log(pod, namespace, container, previous, lines, timestamps="true", sinceTime=since)
        split = (line.partition(" ") for line in printed.split("\n") if line)
        # The API takes whole seconds. Times sort as text: always nine digits behind the point (k8s.io/cri-client/pkg/
        # logs, timeFormatOut).
        return tuple((moment, text) for moment, _, text in split if moment > since)

    def _log(self, pod: str, namespace: str, container: str, previous: bool, lines: int | None, **options: str) -> str:
        options |= {"container": container, "previous": "true" if previous else ""}
        options |= {"tailLines": "" if lines is None else str(lines)}
        params = {key: value for key, value in options.items() if value}
        request = Request("get", POD, pod, namespace, part="log")
        try:
            answer = self.transport.send("GET", POD.path(namespace, pod, part="log"), request, params=params)
        except (InvalidError, MissingError):
            return ""
        return answer.body.decode(errors="replace")

    def run_in(self, pod: str, command: Sequence[str], *, namespace: str, container: str, seconds: float) -> Ran:
        return streams.run_in(self.transport, pod, command, namespace=namespace, container=container, seconds=seconds)


def _object(found: Any) -> Object:
    if not isinstance(found, dict):
        raise KubeError("the Kubernetes API did not answer with an object")
    return found


def _name(body: Object) -> str:
    metadata = body.get("metadata") or {}
    return str(metadata.get("name") or "")
