"""The Kubernetes API: objects by kind and name, rights, and logs of pods."""

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
# The API server records this name as the owner of changed fields (meta/v1, managedFields).
FIELD_MANAGER = "trainyard"


class Kube:
    """One Kubernetes cluster as one user sees it; threads may share it.

    Every call has a deadline. It raises ApiUnreachableError if no answer comes,
    ForbiddenError if the user lacks the right, PrerequisiteError if the login
    is rejected, and KubeError for any other rejection. A missing object is no
    error for `get`, `list`, `delete`, `serves` and `logs`.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.context = access.context
        self.server = access.server
        self.place = f"context {access.context}"
        self.transport = Transport(access)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        response = self.transport.send("GET", kind.path(namespace, name), accept=(404,))
        if response.status == 404:
            return None
        return response.document()

    def list(self, kind: Kind, *, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Return objects of one or all namespaces; [] for an unknown kind."""
        params = {}
        if labels:
            params["labelSelector"] = labels
        response = self.transport.send("GET", kind.path(namespace), params=params, accept=(404,))
        if response.status == 404:
            return []

        items: list[Object] = response.document().get("items") or []
        return items

    def create(self, kind: Kind, body: Object, *, namespace: str | None = None) -> Object:
        """Make an object. Raises ConflictError if it exists."""
        return self.transport.send(
            "POST",
            kind.path(namespace),
            body={"apiVersion": kind.api, "kind": kind.name, **body},
        ).document()

    def apply(
        self, kind: Kind, body: Object, *, namespace: str | None = None, dry_run: bool = False
    ) -> Object:
        """Set the fields of `body` (server-side apply), and return the object.

        Other fields stay. With `dry_run`, the API checks and completes the
        object, but does not store it.
        """
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        if dry_run:
            params["dryRun"] = "All"
        return self.transport.send(
            "PATCH",
            kind.path(namespace, body["metadata"]["name"]),
            params=params,
            body={"apiVersion": kind.api, "kind": kind.name, **body},
            content_type="application/apply-patch+yaml",
        ).document()

    def patch(
        self, kind: Kind, name: str, merge: Object, *, namespace: str | None = None
    ) -> Object:
        """Change fields, and remove those that are None (JSON merge patch)."""
        return self.transport.send(
            "PATCH",
            kind.path(namespace, name),
            params={"fieldManager": FIELD_MANAGER},
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
        """Ask for the removal of an object.

        Returns False if it does not exist, or has another `uid`. The object is
        gone when `get` returns None, which may take time; with `with_owned`,
        only after all objects that it owns.
        """
        policy = "Foreground" if with_owned else "Background"
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        accepted: tuple[int, ...] = (404,)
        if uid:
            options["preconditions"] = {"uid": uid}
            accepted = (404, 409)

        path = kind.path(namespace, name)
        response = self.transport.send("DELETE", path, body=options, accept=accepted)
        return response.status < 400

    def answers(self) -> bool:
        """Say whether the server answers, even with an error."""
        try:
            self.transport.send("GET", "/version")
        except TrainyardError as error:
            return not isinstance(error, ApiUnreachableError)
        return True

    def may(self, right: Right, *, namespace: str) -> bool:
        """Ask whether this user has a right (SelfSubjectAccessReview)."""
        resource, _, part = right.resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": part,
        }
        review = self.create(_REVIEWS, {"spec": {"resourceAttributes": attributes}})
        return bool(review["status"]["allowed"])

    def serves(self, kind: Kind) -> bool:
        """Say whether the cluster knows this kind, in this version."""
        response = self.transport.send("GET", kind.root, accept=(404,))
        if response.status == 404:
            return False
        resources = response.document().get("resources") or []
        return any(resource["name"] == kind.plural for resource in resources)

    def logs(
        self, pod: str, *, namespace: str, container: str, lines: int, previous: bool = False
    ) -> str:
        """Return a container's last lines, or those before its last restart.

        Returns "" if that run, or the pod, does not exist.
        """
        params = {"container": container, "tailLines": str(lines)}
        if previous:
            params["previous"] = "true"
        response = self.transport.send(
            "GET", POD.path(namespace, pod, part="log"), params=params, accept=(400, 404)
        )
        if response.status == 200:
            return response.body.decode(errors="replace")
        return ""


@cache
def connect(access: Access) -> Kube:
    """Return the cluster of a context; send no request yet.

    The same context gives the same object, so that a process logs in once: a
    login program may take seconds, or prompt the user.
    """
    return Kube(access)
