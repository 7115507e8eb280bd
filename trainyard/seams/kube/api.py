"""The Kubernetes API: objects by kind and name, and what pods print."""

from __future__ import annotations

from functools import cache

from trainyard.errors import TrainyardError
from trainyard.seams.kube.config import Access
from trainyard.seams.kube.errors import ApiUnreachableError
from trainyard.seams.kube.transport import Transport
from trainyard.seams.kube.types import POD, Kind, Object, Right

_REVIEWS = Kind(
    "authorization.k8s.io/v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
# Who the API server says changed what (meta/v1, managedFields).
FIELD_MANAGER = "trainyard"


class Kube:
    """One Kubernetes cluster as one user sees it; threads may share it.

    Every call has a deadline. All raise ApiUnreachableError when nobody answers, ForbiddenError,
    PrerequisiteError for a login, and KubeError for whatever else the API refuses; an object that
    is not there is None, False or nothing where that is an answer.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.context = access.context
        self.server = access.server
        self.place = access.place
        self.transport = Transport(access)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        response = self.transport.send("GET", kind.path(namespace, name), accept=(404,))
        if response.status == 404:
            return None
        return response.document()

    def list(self, kind: Kind, *, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Return the objects of a namespace, or of all; none of a kind that the cluster does not
        know.
        """
        params = _written(labelSelector=labels)
        response = self.transport.send("GET", kind.path(namespace), params=params, accept=(404,))
        items = [] if response.status == 404 else response.document().get("items") or []
        # The API leaves out of each what all have in common.
        return [{"apiVersion": kind.api, "kind": kind.name, **item} for item in items]

    def create(self, kind: Kind, body: Object, *, namespace: str | None = None) -> Object:
        """Make an object. Raises ConflictError if it is there."""
        return self.transport.send("POST", kind.path(namespace), body=body).document()

    def apply(
        self, kind: Kind, body: Object, *, namespace: str | None = None, dry_run: bool = False
    ) -> Object:
        """Make an object say what `body` says, and return what it is then; what others say of it
        stays.

        (Server-side apply.) With `dry_run` it is checked and completed by the API, and nothing is
        kept.
        """
        return self.transport.send(
            "PATCH",
            kind.path(namespace, body["metadata"]["name"]),
            params=_written(
                fieldManager=FIELD_MANAGER, force="true", dryRun="All" if dry_run else ""
            ),
            body={"apiVersion": kind.api, "kind": kind.name, **body},
            content_type="application/apply-patch+yaml",
        ).document()

    def patch(
        self, kind: Kind, name: str, merge: Object, *, namespace: str | None = None
    ) -> Object:
        """Change fields of an object; a field that is None is removed (JSON merge patch)."""
        return self.transport.send(
            "PATCH",
            kind.path(namespace, name),
            params=_written(fieldManager=FIELD_MANAGER),
            body=merge,
            content_type="application/merge-patch+json",
        ).document()

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        with_owned: bool = False,
    ) -> bool:
        """Ask for the removal of an object; False if it is not there, or is another one than `uid`.

        It is gone only when `get` says so; `with_owned`: and not before all that it owns.
        """
        policy = "Foreground" if with_owned else "Background"
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        if uid:
            options["preconditions"] = {"uid": uid}
        accepted = (404, 409) if uid else (404,)
        return (
            self.transport.send(
                "DELETE", kind.path(namespace, name), body=options, accept=accepted
            ).status
            < 400
        )

    def answers(self) -> bool:
        """Say whether the server answers at all; whatever it says will do."""
        try:
            self.transport.send("GET", "/version")
        except TrainyardError as error:
            return not isinstance(error, ApiUnreachableError)
        return True

    def may(self, right: Right, *, namespace: str) -> bool:
        """Say whether we have a right in a namespace; Kubernetes decides
        (SelfSubjectAccessReview).
        """
        resource, _, part = right.resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": part,
        }

        review = {
            "apiVersion": _REVIEWS.api,
            "kind": _REVIEWS.name,
            "spec": {"resourceAttributes": attributes},
        }

        return bool(self.create(_REVIEWS, review)["status"]["allowed"])

    def serves(self, kind: Kind) -> bool:
        """Say whether the cluster knows this kind, in this version."""
        response = self.transport.send("GET", kind.root, accept=(404,))
        served = [] if response.status == 404 else response.document().get("resources") or []
        return any(each["name"] == kind.plural for each in served)

    def logs(
        self, pod: str, *, namespace: str, container: str, lines: int, previous: bool = False
    ) -> str:
        """Return the last lines of a container; "" if it did not start yet, or has no
        predecessor.
        """
        params = _written(
            container=container, previous="true" if previous else "", tailLines=str(lines)
        )
        response = self.transport.send(
            "GET", POD.path(namespace, pod, part="log"), params=params, accept=(400, 404)
        )
        if response.status == 200:
            return response.body.decode(errors="replace")
        return ""


@cache
def connect(access: Access) -> Kube:
    """Return the cluster of a context; nothing is asked of it yet.

    One login for each context and process: a program that logs in may take seconds, or ask a
    person.
    """
    return Kube(access)


def _written(**params: str) -> dict[str, str]:
    """Return the parameters that say something."""
    return {key: value for key, value in params.items() if value}
