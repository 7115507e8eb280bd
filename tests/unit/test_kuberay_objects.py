"""The objects that accompany a RayCluster: made once, kept, and never another user's."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named
from tests.unit.fake_kube import location as fake_location
from trainyard.backends.kuberay import desired, objects
from trainyard.errors import RequestError
from trainyard.images.resolve import PinnedImage
from trainyard.seams.kube.errors import InvalidError
from trainyard.seams.kube.types import CLAIM, RAY_CLUSTER, SECRET
from trainyard.seams.registry.auth import Login
from trainyard.steps import Step

PINNED = PinnedImage(
    "r:5000/ray:1", "r:5000/ray@sha256:0", "sha256:0", Login("ops", "secret", "docker login")
)


def run(step: Step) -> None:
    if not step.done().holds:
        step.do()
    assert step.done().holds


def secret(name: str, **data: str) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {**named(name, cluster="lab"), "data": encoded}


def test_a_token_is_made_once_and_never_twice() -> None:
    kube = FakeKube()
    objects.token_step(fake_location(kube)).do()
    objects.token_step(fake_location(kube)).do()

    assert [one["metadata"]["name"] for one in kube.created] == ["lab"]
    assert len(kube.created[0]["stringData"]["auth_token"]) == 64
    assert kube.created[0]["metadata"]["labels"]["io.trainyard/cluster"] == "lab"


def test_the_token_that_kuberay_made_for_our_ray_cluster_is_taken() -> None:
    cluster = named("lab", cluster="lab")
    kube = FakeKube((RAY_CLUSTER, cluster))
    kube.put(SECRET, {**named("lab", owner=cluster), "data": {"auth_token": "eA=="}})

    assert objects.token_step(fake_location(kube)).done().holds


def test_a_foreign_secret_with_the_clusters_name_is_refused() -> None:
    with pytest.raises(RequestError) as error:
        objects.token_step(fake_location(FakeKube((SECRET, named("lab"))))).done()

    assert error.value.lines() == [
        "a Secret called lab is in namespace team, and Trainyard did not make it",
        "  at context lab",
        "  -> Give the cluster another name (`name:` in the cluster file).",
    ]


def test_a_token_that_cannot_be_read_is_none_and_said() -> None:
    kube = FakeKube((SECRET, {**named("lab", cluster="lab"), "data": {"auth_token": "!"}}))

    assert objects.token(fake_location(kube)) is None
    assert (
        objects.token_step(fake_location(kube)).done().detail
        == "the Secret lab has no token: remove the Secret"
    )


def test_a_login_becomes_a_secret_and_is_removed_once_it_is_not_needed() -> None:
    kube = FakeKube()
    where = fake_location(kube)
    login = desired.pull_secret("lab", [PINNED], others=(), name="lab.pull")
    assert login
    run(objects.login_step(where, login))
    both = desired.pull_secret(
        "lab", [PINNED, replace(PINNED, reference="other:5000/x")], others=(), name="lab.pull"
    )
    assert (
        both and len(json.loads(base64.b64decode(both["data"][".dockerconfigjson"]))["auths"]) == 2
    )
    other = desired.pull_secret(
        "lab", [replace(PINNED, login=Login("ops", "new", "x"))], others=(), name="lab.pull"
    )
    assert other
    assert objects.login_step(where, other).done().detail == "the Secret has another login"
    assert kube.names(SECRET) == {"lab.pull"}
    run(objects.login_step(where, None))
    assert kube.names(SECRET) == set()


def claim(
    size: str, *, access: str = "ReadWriteMany", storage_class: str | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": [access], "resources": {"requests": {"storage": size}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {**named("lab-outputs", cluster="lab"), "spec": spec}


def test_a_claim_grows_and_is_left_alone_otherwise() -> None:
    kube = FakeKube((CLAIM, claim("1Gi", storage_class="fast")))
    where = fake_location(kube)

    assert objects.claim_step(where, claim("1Gi")).done().holds
    run(objects.claim_step(where, claim("2Gi")))

    assert kube.changed == ["patch PersistentVolumeClaim lab-outputs"]


def test_a_claim_cannot_shrink_or_be_shared_otherwise() -> None:
    kube = FakeKube((CLAIM, claim("2Gi")))
    kube.refusals["patch"] = InvalidError(
        "Kubernetes does not take it: spec is immutable after creation"
    )
    step = objects.claim_step(fake_location(kube), claim("1Gi", access="ReadWriteOnce"))
    assert not step.done().holds

    with pytest.raises(RequestError) as error:
        step.do()

    assert error.value.lines() == [
        "the claim lab-outputs cannot be changed to what the file asks for; the outputs are on it",
        "  at Kubernetes does not take it: spec is immutable after creation",
        "  -> Change kuberay.storage back; or fetch the outputs, and remove the claim together with the cluster: "
        "trainyard cluster.down",
    ]
