"""What a cluster needs beside its RayCluster: made once, kept, and never somebody else's."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named
from tests.unit.fake_kube import location as fake_location
from trainyard.backends.kuberay import desired, objects
from trainyard.errors import RequestError
from trainyard.images.types import PinnedImage
from trainyard.seams.kube.types import CLAIM, NAMESPACE, RAY_CLUSTER, SECRET
from trainyard.seams.registry.auth import Login
from trainyard.steps import Step

PINNED = PinnedImage("r:5000/ray:1", "r:5000/ray@sha256:0", "sha256:0", Login("ops", "secret", "docker login"))


def run(step: Step) -> None:
    if not step.done().holds:
        step.do()
    assert step.done().holds


def secret(name: str, **data: str) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {**named(name, cluster="lab"), "data": encoded}


def test_a_namespace_is_made_with_our_mark_and_only_once() -> None:
    kube = FakeKube()
    document = {"metadata": {"name": "team", "labels": {"app.kubernetes.io/managed-by": "trainyard"}}}
    step = objects.namespace_step(fake_location(kube), document)

    run(step)
    run(step)

    assert kube.names(NAMESPACE) == {"team"}
    assert len(kube.created) == 1


def test_a_namespace_that_may_not_be_looked_at_is_taken_to_be_there() -> None:
    assert objects.namespace_step(fake_location(FakeKube(forbidden=["namespaces"])), {}).done().holds


def test_a_token_is_made_once_and_never_twice() -> None:
    kube = FakeKube()
    objects.token_step(fake_location(kube)).do()
    objects.token_step(fake_location(kube)).do()

    assert [one["metadata"]["name"] for one in kube.created] == ["lab"]
    assert len(kube.created[0]["stringData"]["auth_token"]) == 64
    assert kube.created[0]["metadata"]["labels"]["io.trainyard/cluster"] == "lab"


def test_a_token_that_is_there_is_kept() -> None:
    kube = FakeKube((SECRET, secret("lab", auth_token="a" * 64)))

    assert objects.token_step(fake_location(kube)).done().holds
    assert objects.token(fake_location(kube)) == "a" * 64


def test_the_token_that_kuberay_made_for_our_ray_cluster_is_taken() -> None:
    cluster = named("lab", cluster="lab")
    kube = FakeKube((RAY_CLUSTER, cluster))
    kube.put(SECRET, {**named("lab", owner=cluster), "data": {"auth_token": "eA=="}})

    assert objects.token_step(fake_location(kube)).done().holds


def test_a_secret_of_somebody_else_is_not_touched() -> None:
    with pytest.raises(RequestError) as error:
        objects.token_step(fake_location(FakeKube((SECRET, named("lab"))))).done()

    assert error.value.lines() == [
        "a Secret called lab is in namespace team, and Trainyard did not make it",
        "  at context lab",
        "  -> Give the cluster another name (`name:` in the cluster file).",
    ]


def test_a_token_that_cannot_be_read_is_none() -> None:
    kube = FakeKube((SECRET, {**named("lab", cluster="lab"), "data": {"auth_token": "!"}}))

    assert objects.token(fake_location(kube)) is None
    assert not objects.token_step(fake_location(kube)).done().holds


def test_a_login_is_handed_over_as_a_secret_and_taken_back_when_it_is_needed_no_more() -> None:
    kube = FakeKube()
    where = fake_location(kube)
    login = desired.pull_secret("lab", PINNED, others=(), name="lab.pull")
    assert login
    run(objects.login_step(where, login))
    assert kube.names(SECRET) == {"lab.pull"}
    run(objects.no_login_step(where))
    assert kube.names(SECRET) == set()


def claim(size: str, *, access: str = "ReadWriteMany", storage_class: str | None = None) -> dict[str, Any]:
    spec = {"accessModes": [access], "resources": {"requests": {"storage": size}}}
    return {**named("lab-outputs", cluster="lab"), "spec": {**spec, "storageClassName": storage_class}}


def test_a_claim_grows_and_is_left_alone_otherwise() -> None:
    kube = FakeKube((CLAIM, claim("1Gi", storage_class="fast")))
    where = fake_location(kube)

    assert objects.claim_step(where, claim("1Gi")).done().holds
    run(objects.claim_step(where, claim("2Gi")))

    assert kube.changed == ["patch PersistentVolumeClaim lab-outputs"]


def test_a_claim_cannot_shrink_or_be_shared_otherwise() -> None:
    kube = FakeKube((CLAIM, claim("2Gi")))

    with pytest.raises(RequestError) as error:
        objects.claim_step(fake_location(kube), claim("1Gi", access="ReadWriteOnce")).done()

    assert error.value.lines() == [
        "the claim lab-outputs cannot be changed to what the file asks for; the outputs are on it",
        "  at kuberay.storage.size: 2GiB now, 1GiB wanted; kuberay.storage.access: ReadWriteMany now, "
        "ReadWriteOnce wanted",
        "  -> Change the file back; or fetch what is on it, and remove it with the cluster: invoke cluster.down",
    ]
