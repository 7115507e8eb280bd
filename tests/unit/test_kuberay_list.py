"""Trainyard's clusters on Kubernetes, found by their label, in cluster.list."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named
from trainyard.backends.kuberay import listing
from trainyard.errors import TrainyardError
from trainyard.operations import cluster_list as clusters
from trainyard.operations.cluster_list import ListedCluster
from trainyard.seams.kube.errors import ApiUnreachableError, ForbiddenError
from trainyard.seams.kube.types import RAY_CLUSTER, Object


def cluster(name: str, namespace: str, *, state: str = "ready", ours: bool = True) -> Object:
    return {
        **named(name, namespace=namespace, cluster=name if ours else ""),
        "status": {"state": state},
    }


def ask(kube: FakeKube, **more: float) -> list[Object] | TrainyardError:
    return listing.ask(kube, **more)  # type: ignore[arg-type]


def kubernetes(**more: Any) -> FakeKube:
    kube = FakeKube(**more)
    for one in (
        cluster("lab", "team"),
        cluster("yard", "b", state=""),
        cluster("hers", "b", ours=False),
    ):
        kube.put(RAY_CLUSTER, one)
    return kube


def test_a_missing_right_to_list_all_namespaces_is_reported() -> None:
    answer = ask(kubernetes(forbidden=["all rayclusters"]))
    assert isinstance(answer, ForbiddenError)
    assert (
        answer.what
        == "clusters without a file here were not looked for: ops may not list rayclusters"
    )


def test_a_kubernetes_that_is_away_or_says_nothing_is_told_in_a_line() -> None:
    kube, over = kubernetes(), threading.Event()

    def away(*given: object, **more: object) -> list[Object]:
        raise ApiUnreachableError("Kubernetes does not answer")

    def silent(*given: object, **more: object) -> list[Object]:
        over.wait()
        return []

    kube.list = away  # type: ignore[method-assign]
    assert str(ask(kube)) == "Kubernetes does not answer"
    kube.list = silent  # type: ignore[method-assign]
    assert str(ask(kube, seconds=0.01)) == "no answer within 0.01 s"
    over.set()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "mine.yaml").write_text("name: mine\nbackend: kuberay\n")
    return tmp_path


def listed(here: Path, **environ: str) -> dict[str, ListedCluster]:
    found, _ = clusters.list_clusters({"HOME": str(here), "PATH": "", **environ}, directory=here)
    return {one.name: one for one in found}


def test_a_file_without_a_kubeconfig_says_so(here: Path) -> None:
    found = listed(here)["mine"]
    assert (found.backend, found.state) == ("kuberay", "unknown")
    assert found.problem == f"there is no kubeconfig: {here}/.kube/config"


def test_a_record_without_a_file_is_listed_with_what_removes_it(here: Path) -> None:
    state = here / ".local" / "state" / "trainyard" / "clusters" / "gone"
    state.mkdir(parents=True)
    (state / "cluster.json").write_text(json.dumps({"backend": "local"}))
    found = listed(here)["gone"]
    assert (found.state, found.problem) == (
        "recorded",
        "made from a file that is not recorded; "
        "`trainyard cluster.down --set name=gone --backend local` removes it",
    )


def test_a_record_that_cannot_be_read_costs_no_other_cluster_its_line(here: Path) -> None:
    for name, text in (("cut", "{"), ("newer", '{"backend": "ec3"}')):
        state = here / ".local" / "state" / "trainyard" / "clusters" / name
        state.mkdir(parents=True)
        (state / "cluster.json").write_text(text)
    found, remarks = clusters.list_clusters({"HOME": str(here), "PATH": ""}, directory=here)
    assert [cluster.name for cluster in found] == ["mine"]
    assert remarks[0].startswith("the record of a cluster is damaged")
    assert "a backend that this version of Trainyard lacks: ec3: " in remarks[1]


def test_a_damaged_note_of_the_file_costs_no_other_cluster_its_line(here: Path) -> None:
    state = here / ".local" / "state" / "trainyard" / "clusters" / "gone"
    state.mkdir(parents=True)
    (state / "cluster.json").write_text(json.dumps({"backend": "local"}))
    (state / "made-from").write_text("{")
    found = listed(here)
    assert set(found) == {"mine", "gone"}
    assert found["gone"].state == "unknown"
    assert (found["gone"].problem or "").startswith("the record of a cluster is damaged")


def test_a_cluster_without_a_file_here_is_listed_with_what_removes_it() -> None:
    yard = listing.found_cluster(kubernetes(), cluster("yard", "b", state=""))  # type: ignore[arg-type]
    assert clusters._other("kuberay", yard, set()) == ListedCluster(
        "yard",
        "kuberay",
        "partial",
        "",
        problem="made from a file that is not here; `trainyard cluster.down --set name=yard "
        "--backend kuberay "
        "--set kuberay.namespace=b --set kuberay.context=lab` removes it",
        place="namespace b of context lab",
    )


def test_a_cluster_whose_file_has_a_mistake_is_not_advised_away(here: Path) -> None:
    (here / "clusters" / "mine.yaml").write_text("name: mine\nbackend: kuberay\nimagee: x\n")
    found = listed(here)["mine"]
    assert (found.state, found.problem) == (
        "unknown",
        f"the cluster file is wrong: 1 problem; {here}/clusters/mine.yaml:3: imagee: is not a "
        "known key; did you mean "
        "'image'?",
    )
    there = listing.found_cluster(kubernetes(), cluster("mine", "team"))  # type: ignore[arg-type]
    assert clusters._other("kuberay", there, {"mine"}).problem == (
        "exists, and may come from the file of this name here, which cannot be read: mend "
        "the file first"
    )
