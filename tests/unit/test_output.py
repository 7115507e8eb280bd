"""How results and next commands are printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.backends.contract import ClusterStatus, Tools
from trainyard.errors import NotReadyError
from trainyard.lifecycle import Cluster
from trainyard.listing import ListedCluster, Listing
from trainyard.spec import load_cluster
from trainyard.steps import PlannedStep
from trainyard.tasks import cluster_output
from trainyard.tasks.output import as_document


def cluster(tmp_path: Path, text: str = "{name: lab, backend: local}") -> Cluster:
    file = tmp_path / "lab.yaml"
    file.write_text(text)
    return Cluster(load_cluster(file), Tools(tmp_path / "state", {}, "local", source=file))


@pytest.mark.parametrize(
    ("step", "command"),
    [
        (PlannedStep("Make the cluster anew", "would", "needs --recreate, which ends all"), "cluster.up --recreate"),
        (PlannedStep("Start the head", "would"), "cluster.up"),
        (PlannedStep("Start the head", "already"), "cluster.status"),
    ],
)
def test_the_command_after_a_plan_is_one_that_will_do(
    step: PlannedStep, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_output.planned(cluster(tmp_path), [step], json=False)
    assert capsys.readouterr().err == f"next: invoke {command}\n"


def test_what_stays_after_a_cluster_on_kubernetes_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/x/bin/trainyard"])
    here = cluster(tmp_path, "{name: lab, backend: kuberay, image: 'r:5000/ray:1'}")
    cluster_output.removed(here, [], json=False)
    note = "note: namespace and KubeRay operator stay; those that Trainyard made go by trainyard cluster.down --purge\n"
    assert capsys.readouterr().err == f"{note}next: trainyard cluster.up\n"
    cluster_output.removed(here, [], json=False, purge=True)
    assert capsys.readouterr().err == "next: trainyard cluster.up\n"


def test_a_list_names_commands_as_the_user_types_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/x/bin/trainyard"])
    one = ListedCluster("gone", "local", "recorded", "", problem="`invoke cluster.down --set name=gone` removes it")
    cluster_output.listed(Listing((one,)), json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "gone: `trainyard cluster.down --set name=gone` removes it"


def test_what_is_seen_of_a_cluster_is_printed_also_when_it_is_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = ClusterStatus("lab", "kuberay", "up", (), detail="gpu-a: Kubernetes calls its node b not ready")
    cluster_output.status(cluster(tmp_path), now, None, json=False)
    assert "gpu-a: Kubernetes calls its node b not ready" in capsys.readouterr().out.splitlines()


def test_a_dashboard_behind_a_tunnel_is_open_before_the_next_command_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = ClusterStatus("lab", "local", "up", (), address="http://127.0.0.1:1", tunnel="a host")
    cluster_output.opened(cluster(tmp_path), now, json=False, browse=True)
    assert capsys.readouterr().err == ""
    cluster_output.opened(cluster(tmp_path), replace(now, tunnel=None), json=False, browse=True)
    assert capsys.readouterr().err == "next: invoke cluster.status\n"
    with pytest.raises(NotReadyError) as caught:
        cluster_output.opened(
            cluster(tmp_path), replace(now, address=None, detail="head: ended"), json=False, browse=True
        )
    assert caught.value.lines() == [
        "nothing leads to the dashboard of cluster lab",
        "  at head: ended",
        "  -> What is wrong with it: invoke cluster.status",
    ]


def test_the_command_after_a_list_of_clusters_is_about_one_that_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    states = {"away": "unknown", "idle": "down", "lab": "up"}
    found = [ListedCluster(name, "local", state, f"clusters/{name}.yaml") for name, state in states.items()]
    cluster_output.listed(Listing((*found, ListedCluster("old", "local", "up", ""))), json=False)
    assert capsys.readouterr().err == "next: invoke cluster.status -f lab\n"


def test_what_a_step_last_saw_keeps_its_name_in_json() -> None:
    document = as_document(PlannedStep("Start the head", "would", "not there"))
    assert document == {"title": "Start the head", "state": "would", "seen": "not there", "disruptive": False}
