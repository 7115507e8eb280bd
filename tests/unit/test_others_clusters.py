"""RayClusters of other users: cluster.list shows them, cluster.import writes files to use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.fake_kube import FakeKube, named
from trainyard.errors import OutsideError, RequestError
from trainyard.importing import of_context
from trainyard.importing.clusters import Clusters
from trainyard.operations.cluster_list import list_clusters
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.spec.load import load_cluster


def cluster(
    name: str, namespace: str, *, ours: bool = False, service: str = "", mode: str = ""
) -> Object:
    head = {"head": {"serviceName": service}} if service else {}
    spec = {"authOptions": {"mode": mode}} if mode else {}
    made = named(name, namespace=namespace, cluster=name if ours else "")
    return {**made, "spec": spec, "status": {"state": "ready", **head}}


@pytest.fixture
def kube(kube: FakeKube) -> FakeKube:
    for one in (
        cluster("isaacray-0", "robots", service="isaacray-0-head-svc", mode="token"),
        cluster("isaacray-1", "robots", service="of-its-own"),
        cluster("schola", "games"),
        cluster("isaacray-0", "games", service="isaacray-0-head-svc"),
        cluster("lab", "team", ours=True),
    ):
        kube.put(RAY_CLUSTER, one)
    return kube


def imported(prefix: str = "", namespace: str | None = None) -> Clusters:
    return of_context({}, context="lab", prefix=prefix, namespace=namespace)


def documents(found: Clusters) -> dict[str, Any]:
    return {name: yaml.safe_load(text) for name, text in found.texts.items()}


@pytest.mark.usefixtures("kube")
def test_each_gets_a_file_with_its_service_and_where_its_token_is(tmp_path: Path) -> None:
    found = imported("isaac", "robots")
    assert documents(found) == {
        "isaacray-0": {
            "name": "isaacray-0",
            "backend": "existing",
            "existing": {
                "service": "robots/isaacray-0-head-svc",
                "context": "lab",
                "token_secret": "isaacray-0",
            },
        },
        "isaacray-1": {
            "name": "isaacray-1",
            "backend": "existing",
            "existing": {"service": "robots/of-its-own", "context": "lab"},
            "auth": "none",
        },
    }

    assert found.notes == (
        "RayCluster robots/isaacray-1 has no token: all who reach its service can run code there",
    )

    for path in found.write(tmp_path):
        assert load_cluster(path).spec.backend == "existing"


@pytest.mark.usefixtures("kube")
def test_two_of_one_name_are_told_apart_by_namespace_without_trainyard_s() -> None:
    assert sorted(documents(imported())) == [
        "games-isaacray-0",
        "isaacray-1",
        "robots-isaacray-0",
        "schola",
    ]


@pytest.mark.usefixtures("kube")
def test_one_that_is_still_made_gets_the_service_that_it_will_have() -> None:
    found = imported("schola")
    assert documents(found)["schola"]["existing"]["service"] == "games/schola-head-svc"
    assert found.notes[0].startswith(
        "RayCluster games/schola has no head service yet: KubeRay will call it schola-head-svc"
    )


@pytest.mark.usefixtures("kube")
def test_a_name_prefix_without_a_match_is_refused_with_all_names() -> None:
    with pytest.raises(RequestError) as caught:
        imported("lab")
    assert (
        caught.value.what
        == "context lab has no RayCluster that another tool made whose name begins with lab"
    )
    assert "robots/isaacray-0, robots/isaacray-1, games/schola" in str(caught.value.problems[0])


def test_a_user_who_may_not_list_all_is_told_what_to_name(kube: FakeKube) -> None:
    kube.forbidden.add("all rayclusters")
    with pytest.raises(OutsideError) as caught:
        imported()
    assert caught.value.hint == "Name a namespace whose RayClusters you may list: --namespace NAME"
    assert len(documents(imported(namespace="robots"))) == 2


@pytest.mark.usefixtures("kube")
def test_they_are_listed_with_what_writes_a_file_for_each(tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "mine.yaml").write_text(
        "name: mine\nbackend: existing\nexisting: {address: no-address}\n"
    )
    found, _ = list_clusters({"HOME": str(tmp_path), "PATH": ""}, directory=tmp_path, context="lab")

    assert [(one.name, one.state, one.place) for one in found if one.backend == "existing"] == [
        ("isaacray-0", "up", "namespace robots of context lab"),
        ("isaacray-1", "up", "namespace robots of context lab"),
        ("schola", "up", "namespace games of context lab"),
        ("isaacray-0", "up", "namespace games of context lab"),
    ]

    assert found[1].problem == (
        "made by another tool; a file for it: trainyard cluster.import --context lab "
        "--namespace robots isaacray-0"
    )
