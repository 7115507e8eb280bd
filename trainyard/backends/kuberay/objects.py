"""Objects made before a RayCluster: namespace, token, login, outputs claim."""

from __future__ import annotations

import secrets
from contextlib import suppress

from trainyard.backends.kuberay import naming, pods
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.shared import record
from trainyard.errors import RequestError
from trainyard.seams.kube.errors import ConflictError, ForbiddenError, InvalidError
from trainyard.seams.kube.types import CLAIM, NAMESPACE, SECRET, Kind, Object, quantity
from trainyard.steps import YES, Answer, Step, no


def namespace_step(location: Location, document: Object) -> Step:
    """Return the step that makes the namespace.

    An unreadable namespace counts as existing.
    """

    def done() -> Answer:
        try:
            found = location.kube.get(NAMESPACE, location.namespace)
        except ForbiddenError:
            return YES
        if found is None:
            return no("there is none")
        if pods.phase(found) == "Terminating":
            return no("it is being removed")
        return YES

    title = f"Make namespace {location.namespace}"
    return Step("namespace", title, done, lambda: make(location, NAMESPACE, document))


def token_step(location: Location) -> Step:
    """Return the step that makes the token, unless another command made one."""
    name = naming.token_secret(location.name)

    def done() -> Answer:
        secret = location.kube.get(SECRET, name, namespace=location.namespace)
        if secret is None:
            return no("there is none")
        if location.name not in [owner.name for owner in owners(secret)]:
            refuse_foreign(secret, location, SECRET)
        if record.secret_token(secret):
            return YES
        return no(f"the Secret {name} has no token: remove the Secret")

    def make_token() -> None:
        document = {
            "metadata": {"name": name, "labels": naming.labels(location.name)},
            "type": "Opaque",
            "stringData": {record.TOKEN_KEY: secrets.token_hex(32)},
        }
        make(location, SECRET, document)

    return Step("token", "Make the cluster's token", done, make_token)


def token(location: Location) -> str | None:
    name = naming.token_secret(location.name)
    secret = location.kube.get(SECRET, name, namespace=location.namespace)
    return record.secret_token(secret or {})


def login_step(location: Location, document: Object | None) -> Step:
    """Return the step that makes the pull Secret or removes an unneeded one."""
    name = naming.pull_secret(location.name)

    def done() -> Answer:
        secret = location.kube.get(SECRET, name, namespace=location.namespace)
        if document is None:
            if secret and is_ours(secret, location.name):
                return no("there is a login that the image does not need")
            return YES
        if secret is None:
            return no("there is none")

        refuse_foreign(secret, location, SECRET)
        if secret.get("data") == document["data"]:
            return YES

        return no("the Secret has another login")

    def apply() -> None:
        if document is None:
            location.kube.delete(SECRET, name, namespace=location.namespace)
        else:
            location.kube.apply(SECRET, document, namespace=location.namespace)

    return Step("image-login", "Set the login for the image", done, apply)


def claim_step(location: Location, document: Object) -> Step:
    """Return the step that makes or changes the outputs claim.

    Kubernetes can only enlarge a claim: any other change raises RequestError.
    """
    name = document["metadata"]["name"]

    def done() -> Answer:
        claim = location.kube.get(CLAIM, name, namespace=location.namespace)
        if claim is None:
            return no("there is none")

        refuse_foreign(claim, location, CLAIM)
        asked = {**claim["spec"], **document["spec"], "resources": claim["spec"]["resources"]}
        if asked == claim["spec"] and _size(claim) == _size(document):
            return YES

        return no("the file asks for another size, class or access")

    def make_or_change() -> None:
        namespace = location.namespace
        try:
            if location.kube.get(CLAIM, name, namespace=namespace) is None:
                make(location, CLAIM, document)
            else:
                change = {"spec": document["spec"]}
                location.kube.patch(CLAIM, name, change, namespace=namespace)
        except InvalidError as error:
            raise RequestError(
                f"the claim {name} cannot be changed to what the file asks for; the outputs are "
                "on it",
                where=error.what,
                hint="Change kuberay.storage back; or fetch the outputs, and remove the claim "
                "together with the cluster: trainyard cluster.down",
            ) from error

    return Step("claim", f"Make the claim {name} for outputs", done, make_or_change)


def _size(claim: Object) -> float:
    return quantity(str(claim["spec"]["resources"]["requests"]["storage"]))


def refuse_foreign(found: Object, location: Location, kind: Kind) -> None:
    """Raise RequestError if the object lacks the cluster's label."""
    if is_ours(found, location.name):
        return
    raise RequestError(
        f"a {kind.name} called {found['metadata']['name']} is in namespace {location.namespace}, "
        "and Trainyard did not make it",
        where=location.kube.place,
        hint="Give the cluster another name (`name:` in the cluster file).",
    )


def make(location: Location, kind: Kind, document: Object) -> None:
    """Create an object, unless another command created it meanwhile."""
    with suppress(ConflictError):
        location.kube.create(kind, document, namespace=location.namespace)
