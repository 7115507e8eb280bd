"""What a cluster needs beside its RayCluster: a namespace, its token, a login for its image, a claim for outputs."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import datetime, timezone

from trainyard.backends import record
from trainyard.backends.kuberay import desired, naming
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.kuberay.pods import quantity
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.errors import RequestError
from trainyard.seams.kube.errors import ConflictError
from trainyard.seams.kube.types import CLAIM, NAMESPACE, SECRET, Kind, Object
from trainyard.spec.units import format_size
from trainyard.steps import YES, Answer, Step, no


def namespace_step(location: Location, document: Object) -> Step:
    """Return the step after which the namespace is there; one that we may not look at is taken to be."""

    def done() -> Answer:
        reply = if_allowed(lambda: location.kube.get(NAMESPACE, location.namespace))
        return YES if reply.found or reply.refusal else no("there is none")

    return Step(f"Make namespace {location.namespace}", done, lambda: make(location, NAMESPACE, document))


def token_step(location: Location) -> Step:
    """Return the step after which the cluster has a token, one only, whoever makes it first."""
    name = naming.token_secret(location.name)

    def done() -> Answer:
        found = location.kube.get(SECRET, name, namespace=location.namespace)
        if found is None:
            return no("there is none")
        if not any(name == location.name for name, _ in owners(found)):
            refuse_foreign(found, location, SECRET)
        return YES if record.secret_token(found) else no("the Secret has none")

    def make_token() -> None:
        content = {"stringData": {record.TOKEN_KEY: secrets.token_hex(32)}}
        if location.kube.get(SECRET, name, namespace=location.namespace):
            # Emptied by somebody: pods that run hold the old one, which nobody knows any more.
            location.kube.patch(SECRET, name, content, namespace=location.namespace)
            return
        metadata = {"name": name, "labels": naming.labels(location.name)}
        document = {"apiVersion": SECRET.api, "kind": SECRET.name, "metadata": metadata, "type": "Opaque", **content}
        make(location, SECRET, document)

    return Step("Make the cluster's token", done, make_token)


def token(location: Location) -> str | None:
    found = location.kube.get(SECRET, naming.token_secret(location.name), namespace=location.namespace)
    return record.secret_token(found) if found else None


def login_step(location: Location, secret: Object) -> Step:
    """Return the step after which kubelets have this login for the image."""

    def done() -> Answer:
        found = location.kube.get(SECRET, naming.pull_secret(location.name), namespace=location.namespace)
        if found is None:
            return no("there is none")
        refuse_foreign(found, location, SECRET)
        return (
            YES if desired.is_current(found, secret, now=datetime.now(timezone.utc)) else no("it holds another login")
        )

    def apply() -> None:
        location.kube.apply(SECRET, secret, namespace=location.namespace)

    return Step("Hand over the login for the image", done, apply)


def no_login_step(location: Location) -> Step:
    """Return the step after which a login that is needed no more is gone."""
    name = naming.pull_secret(location.name)

    def done() -> Answer:
        return no("it is there") if location.kube.get(SECRET, name, namespace=location.namespace) else YES

    def remove() -> None:
        location.kube.delete(SECRET, name, namespace=location.namespace)

    return Step("Take back the login for the image", done, remove)


def claim_step(location: Location, document: Object) -> Step:
    """Return the step after which the claim for outputs is there, as large as the file wants it."""
    name = document["metadata"]["name"]

    def done() -> Answer:
        found = location.kube.get(CLAIM, name, namespace=location.namespace)
        if found is None:
            return no("there is none")
        refuse_foreign(found, location, CLAIM)
        return _as_desired(found, document)

    def make_or_grow() -> None:
        if location.kube.get(CLAIM, name, namespace=location.namespace) is None:
            make(location, CLAIM, document)
        else:
            larger = {"spec": {"resources": document["spec"]["resources"]}}
            location.kube.patch(CLAIM, name, larger, namespace=location.namespace)

    return Step(f"Make the claim {name} for outputs", done, make_or_grow)


def refuse_foreign(found: Object, location: Location, kind: Kind) -> None:
    """Raise RequestError for an object that needs a name of ours and that somebody else made."""
    if is_ours(found, location.name):
        return
    raise RequestError(
        f"a {kind.name} called {found['metadata']['name']} is in namespace {location.namespace}, and Trainyard did "
        "not make it",
        where=location.kube.place,
        hint="Give the cluster another name (`name:` in the cluster file).",
    )


def make(location: Location, kind: Kind, document: Object) -> None:
    """Make an object, unless somebody else was faster."""
    with suppress(ConflictError):
        location.kube.create(kind, document, namespace=location.namespace if kind.namespaced else None)


def _as_desired(there: Object, desired: Object) -> Answer:
    """Say whether a claim is as it should be; only its size can ever change, and only grow. Raises RequestError."""
    old, new = there["spec"], desired["spec"]
    was, becomes = (int(quantity(str(each["resources"]["requests"]["storage"]))) for each in (old, new))
    size = f"kuberay.storage.size: {format_size(was)} now, {format_size(becomes)} wanted"
    fixed = [size] if becomes < was else []
    if old["accessModes"] != new["accessModes"]:
        fixed.append(f"kuberay.storage.access: {old['accessModes'][0]} now, {new['accessModes'][0]} wanted")
    # Left out, it is the default one: the API server has written it down.
    wanted_class = new.get("storageClassName")
    if wanted_class is not None and old.get("storageClassName") != wanted_class:
        fixed.append(f"kuberay.storage.storage_class: {old.get('storageClassName')} now, {wanted_class} wanted")
    if fixed:
        raise RequestError(
            f"the claim {there['metadata']['name']} cannot be changed to what the file asks for; the outputs are on it",
            where="; ".join(fixed),
            hint="Change the file back; or fetch what is on it, and remove it with the cluster: invoke cluster.down",
        )
    return no(size) if becomes > was else YES
