"""What a cluster needs beside its RayCluster: a namespace, its token, a login for its image, a claim for outputs."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import datetime, timezone

from trainyard.backends import record
from trainyard.backends.kuberay import names, pull
from trainyard.backends.kuberay.documents import change
from trainyard.backends.kuberay.site import Site, is_ours
from trainyard.backends.kuberay.there import seen
from trainyard.errors import RequestError
from trainyard.images.types import PinnedImage
from trainyard.seams.kube.errors import ConflictError, ForbiddenError
from trainyard.seams.kube.types import CLAIM, NAMESPACE, RAY_CLUSTER, SECRET, Kind, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no


def namespace_step(site: Site, document: Object) -> Step:
    """Return the step after which the namespace is there; one that we may not look at is taken to be."""

    def done() -> Answer:
        try:
            return YES if site.kube.get(NAMESPACE, site.namespace) else no("there is none")
        except ForbiddenError:
            return YES

    return Step(f"Make namespace {site.namespace}", done=done, do=lambda: _create(site, NAMESPACE, document))


def token_step(site: Site) -> Step:
    """Return the step after which the cluster has a token, one only, whoever makes it first."""

    def done() -> Answer:
        found = site.kube.get(SECRET, names.token_secret(site.name), namespace=site.namespace)
        if found is None:
            return no("there is none")
        _refuse_foreign_token(found, site)
        return YES if record.secret_token(found) else no("the Secret has none")

    return Step("Make the cluster's token", done=done, do=lambda: _make_token(site))


def token(site: Site) -> str | None:
    """Return the cluster's token, None if it has none."""
    found = site.kube.get(SECRET, names.token_secret(site.name), namespace=site.namespace)
    return record.secret_token(found) if found else None


def pull_step(spec: ClusterSpec, site: Site, image: PinnedImage) -> Step | None:
    """Return the step after which kubelets have a login for the image, None where they need none."""
    wanted = pull.secret(spec.name, image, others=spec.kuberay.pull_secrets, now=datetime.now(timezone.utc))
    if wanted is None:
        return None

    def done() -> Answer:
        found = site.kube.get(SECRET, names.pull_secret(site.name), namespace=site.namespace)
        if found is None:
            return no("there is none")
        refuse_foreign(found, site, "Secret")
        return YES if pull.is_current(found, wanted, now=datetime.now(timezone.utc)) else no("it holds another login")

    def make() -> None:
        site.kube.apply(SECRET, wanted, namespace=site.namespace)

    return Step("Hand over the login for the image", done=done, do=make)


def no_login_step(site: Site) -> Step | None:
    """Return the step after which a login that is needed no more is gone, None if there is none."""
    name = names.pull_secret(site.name)

    def done() -> Answer:
        return no("it is there") if has_login(site) else YES

    def remove() -> None:
        site.kube.delete(SECRET, name, namespace=site.namespace)

    if not has_login(site):
        return None
    return Step("Take back the login for the image", done=done, do=remove)


def has_login(site: Site) -> bool:
    """Say whether we handed over a login for the image once."""
    found = seen(lambda: site.kube.get(SECRET, names.pull_secret(site.name), namespace=site.namespace)).found
    return found is not None and is_ours(found, site.name)


def has_smaller_claim(site: Site, document: Object) -> bool:
    """Say whether the claim for outputs is there, and is to grow."""
    name = document["metadata"]["name"]
    found = seen(lambda: site.kube.get(CLAIM, name, namespace=site.namespace)).found
    return found is not None and bool(change.claim_differences(found, document))


def claim_step(site: Site, document: Object) -> Step:
    """Return the step after which the claim for outputs is there, as large as the file wants it."""
    name = document["metadata"]["name"]

    def done() -> Answer:
        found = site.kube.get(CLAIM, name, namespace=site.namespace)
        if found is None:
            return no("there is none")
        refuse_foreign(found, site, "PersistentVolumeClaim")
        refuse_other_claim(found, document)
        larger = change.claim_differences(found, document)
        return no("; ".join(map(str, larger))) if larger else YES

    def make() -> None:
        if site.kube.get(CLAIM, name, namespace=site.namespace) is None:
            _create(site, CLAIM, document)
        else:
            larger = {"spec": {"resources": document["spec"]["resources"]}}
            site.kube.patch(CLAIM, name, larger, namespace=site.namespace)

    return Step(f"Make the claim {name} for outputs", done=done, do=make)


def refuse_other_claim(there: Object, wanted: Object) -> None:
    """Raise RequestError if a claim differs in what Kubernetes never changes: its class, how it is shared, its size."""
    differences = [str(one) for one in change.claim_differences(there, wanted) if not one.applied]
    if differences:
        raise RequestError(
            f"the claim {there['metadata']['name']} cannot be changed to what the file asks for; the outputs are on it",
            where="; ".join(differences),
            hint="Change the file back; or fetch what is on it, and remove it with the cluster: invoke cluster.down",
        )


def _create(site: Site, kind: Kind, document: Object) -> None:
    """Make an object, unless somebody else was faster."""
    with suppress(ConflictError):
        site.kube.create(kind, document, namespace=site.namespace if kind.namespaced else None)


def _make_token(site: Site) -> None:
    text = secrets.token_hex(32)
    name = names.token_secret(site.name)
    if site.kube.get(SECRET, name, namespace=site.namespace):
        # Emptied by somebody: pods that run hold the old one, which nobody knows any more.
        site.kube.patch(SECRET, name, {"stringData": {record.TOKEN_KEY: text}}, namespace=site.namespace)
        return
    document = {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "metadata": {"name": name, "labels": names.labels(site.name)},
        "type": "Opaque",
        "stringData": {record.TOKEN_KEY: text},
    }
    _create(site, SECRET, document)


def _refuse_foreign_token(found: Object, site: Site) -> None:
    """Raise RequestError for a Secret that is neither ours nor what KubeRay made for our RayCluster."""
    owners = found["metadata"].get("ownerReferences") or ()
    if any((one["kind"], one["name"]) == (RAY_CLUSTER.name, site.name) for one in owners):
        return
    refuse_foreign(found, site, "Secret")


def refuse_foreign(found: Object, site: Site, what: str) -> None:
    """Raise RequestError for an object that needs a name of ours and that somebody else made."""
    if is_ours(found, site.name):
        return
    raise RequestError(
        f"a {what} called {found['metadata']['name']} is in namespace {site.namespace}, and Trainyard did not make it",
        where=site.kube.place,
        hint="Give the cluster another name (`name:` in the cluster file).",
    )
