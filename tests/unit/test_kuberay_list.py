"""Clusters of ours on Kubernetes, found by their label; and what cluster.list says of them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named
from trainyard import listing as clusters
from trainyard.backends.kuberay import listing
from trainyard.backends.kuberay.listing import Answer, Found, Question
from trainyard.listing import ListedCluster
from trainyard.seams.kube.errors import GoneError
from trainyard.seams.kube.types import NAMESPACE, RAY_CLUSTER, Object

SERVER = "https://192.0.2.1:6443"


def cluster(name: str, namespace: str, *, state: str = "ready", ours: bool = True) -> Object:
    return {**named(name, namespace=namespace, cluster=name if ours else ""), "status": {"state": state}}


def kubernetes(**more: Any) -> FakeKube:
    kube = FakeKube(**more)
    for one in (cluster("lab", "team"), cluster("yard", "b", state=""), cluster("hers", "b", ours=False)):
        kube.put(RAY_CLUSTER, one)
    return kube


def ask(kube: FakeKube, *namespaces: str) -> Answer:
    question = Question(kube, namespaces)  # type: ignore[arg-type]
    return listing.asked([question], now=lambda: 0.0)["lab", kube.server]


LAB, YARD = Found("lab", "team", "lab", SERVER, True), Found("yard", "b", "lab", SERVER, False)


def test_clusters_of_ours_are_found_in_all_namespaces_and_those_of_others_are_not() -> None:
    assert ask(kubernetes()) == Answer("lab", SERVER, (LAB, YARD))


def test_who_may_not_list_all_sees_what_each_namespace_shows() -> None:
    kube = kubernetes(forbidden=["all rayclusters"])
    kube.put(NAMESPACE, named("team"))
    kube.put(NAMESPACE, named("b"))
    found = ask(kube)
    assert (found.found, found.remark) == ((LAB, YARD), "context lab: you may list RayClusters only in team, b")


def test_who_may_not_list_namespaces_sees_the_ones_that_files_name() -> None:
    kube = kubernetes(forbidden=["all rayclusters", "namespaces"])
    found = ask(kube, "team")
    assert (found.found, found.remark) == ((LAB,), "context lab: you may list RayClusters only in default, team")


def test_a_kubernetes_that_is_away_is_told_in_a_line() -> None:
    kube = kubernetes()

    def away(*given: object, **more: object) -> list[Object]:
        raise GoneError("Kubernetes does not answer")

    kube.list = away  # type: ignore[method-assign]
    assert ask(kube) == Answer("lab", SERVER, problem="Kubernetes does not answer")


def test_a_kubernetes_that_says_nothing_is_not_waited_for() -> None:
    kube, over = kubernetes(), threading.Event()

    def silent(*given: object, **more: object) -> list[Object]:
        over.wait()
        return []

    kube.list = silent  # type: ignore[method-assign]
    question = Question(kube)  # type: ignore[arg-type]
    assert listing.asked([question], seconds=0.01, now=lambda: 0.0) == {
        ("lab", SERVER): Answer("lab", SERVER, problem="no answer within 0.01 s")
    }
    over.set()


def test_each_context_asks_for_itself_also_where_two_lead_to_one_server() -> None:
    some, all_ = kubernetes(forbidden=["all rayclusters", "namespaces"]), kubernetes()
    some.context = "few-rights"
    found = listing.asked([Question(all_), Question(some, ("team",))], now=lambda: 0.0)  # type: ignore[arg-type]
    assert found["lab", SERVER].found == (LAB, YARD)
    assert [one.name for one in found["few-rights", SERVER].found] == ["lab"]


@pytest.mark.parametrize(("user", "asked"), [({"token": "x"}, True), ({"exec": {"command": "sh"}}, False)])
def test_nobody_logs_in_for_the_merely_current_context(
    user: dict[str, Any], asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "exec" in user:
        user["exec"]["apiVersion"] = "client.authentication.k8s.io/v1"
    named = {"clusters": ("cluster", {"server": SERVER}), "users": ("user", user)}
    contexts = {"contexts": ("context", {"cluster": "lab", "user": "lab"})}
    parts = {plural: [{"name": "lab", kind: body}] for plural, (kind, body) in {**named, **contexts}.items()}
    file = tmp_path / "config"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "lab", **parts}))
    monkeypatch.setattr(listing, "asked", lambda questions: {listing.key(one.kube): one for one in questions})
    found = listing.look((), {"KUBECONFIG": str(file), "PATH": "/bin:/usr/bin", "HOME": str(tmp_path)})
    assert list(found) == ([("lab", SERVER)] if asked else [])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "mine.yaml").write_text("name: mine\nbackend: kuberay\n")
    return tmp_path


def listed(here: Path, **environ: str) -> dict[str, ListedCluster]:
    found = clusters.list_clusters({"HOME": str(here), "PATH": "", **environ}, directory=here)
    return {one.name: one for one in found.clusters}


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
        "made from a file that is not here, or is another's now; "
        "`invoke cluster.down --set name=gone --backend local` removes it",
    )


def test_a_cluster_that_no_file_here_is_about_is_listed_with_what_removes_it() -> None:
    assert clusters._other("kuberay", listing._other(YARD), set()) == ListedCluster(
        "yard",
        "kuberay",
        "partial",
        "",
        problem="made from a file that is not here; `invoke cluster.down --set name=yard --backend kuberay "
        "--set kuberay.namespace=b --set kuberay.context=lab` removes it",
        place="namespace b of context lab",
    )


def test_a_kubeconfig_that_cannot_be_read_is_no_error_of_the_list(here: Path) -> None:
    (here / "broken").write_text("{")
    found = listed(here, KUBECONFIG=str(here / "broken"))
    assert found["mine"].state == "unknown"
    assert found["mine"].problem


def test_a_cluster_whose_file_has_a_mistake_is_not_advised_away(here: Path) -> None:
    (here / "clusters" / "mine.yaml").write_text("name: mine\nbackend: kuberay\nimagee: x\n")
    found = listed(here)["mine"]
    assert (found.state, found.problem) == (
        "unknown",
        f"the cluster file is wrong: 1 problem; {here}/clusters/mine.yaml:3: imagee: is not a known key; did you mean "
        "'image'?",
    )
    there = Found("mine", "team", "lab", SERVER, is_ready=True)
    assert clusters._other("kuberay", listing._other(there), {"mine"}).problem == (
        "there, and perhaps made from the file of this name here, which cannot be read: mend that first"
    )
