"""Where a cluster lives on Kubernetes, written down and found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named
from tests.unit.fake_kube import site as fake_site
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import record as records
from trainyard.backends.kuberay import site
from trainyard.backends.kuberay.record import Record
from trainyard.backends.kuberay.site import Site
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube.types import NAMESPACE, POD, RAY_CLUSTER
from trainyard.spec.cluster import ClusterSpec
from trainyard.typed import Typed

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: lab
contexts:
  - {name: lab, context: {cluster: lab, user: ops}}
  - {name: other, context: {cluster: other, user: ops}}
clusters:
  - {name: lab, cluster: {server: "https://192.0.2.1:6443"}}
  - {name: other, cluster: {server: "https://192.0.2.2:6443"}}
users:
  - {name: ops, user: {token: secret}}
"""


def spec(**kuberay: Any) -> ClusterSpec:
    section = {"namespace": "team", **kuberay}
    return ClusterSpec.model_validate(
        {"name": "lab", "backend": "kuberay", "image": "r:5000/ray:1", "kuberay": section}
    )


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Return tools with a kubeconfig of two contexts."""
    config = tmp_path / "kubeconfig"
    config.write_text(KUBECONFIG)
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(config), "PATH": ""}
    return Tools(tmp_path / "state", environ, "kuberay", source=Path("lab.yaml"), directory=tmp_path)


@pytest.fixture(autouse=True)
def uids(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return by which uid each server is known; of those that are missing, the user may not see it."""
    known: dict[str, str] = {}
    monkeypatch.setattr(records, "identity", lambda kube: known.get(kube.server, ""))
    return known


def written(tools: Tools, **more: Any) -> Record:
    known = {"name": "lab", "context": "lab", "kubeconfig": tools.environ["KUBECONFIG"]}
    record = Record(**{**known, "namespace": "team", "server": "https://192.0.2.1:6443", **more})
    records.write(tools, record)
    return record


def test_a_cluster_that_is_not_written_down_is_where_its_file_says(tools: Tools) -> None:
    found = site.find(spec(context="other"), tools)

    assert (found.kube.server, found.namespace) == ("https://192.0.2.2:6443", "team")


def test_what_is_written_down_counts(tools: Tools) -> None:
    record = written(tools, context="other", namespace="old", server="https://192.0.2.2:6443")
    found = site.find(spec(), tools)

    assert records.read(tools) == record
    assert (found.kube.server, found.namespace) == ("https://192.0.2.2:6443", "old")


def test_what_another_backend_wrote_is_not_ours(tools: Tools) -> None:
    tools.state.mkdir()
    (tools.state / "cluster.json").write_text('{"backend": "compose"}')

    assert records.read(tools) is None


def test_a_context_that_was_renamed_is_found_by_its_server(tools: Tools) -> None:
    written(tools, context="old-name")

    assert site.find(spec(), tools).kube.server == "https://192.0.2.1:6443"


def test_a_context_that_is_gone_is_said(tools: Tools) -> None:
    written(tools, context="gone", server="https://192.0.2.9:6443")

    with pytest.raises(PrerequisiteError):
        site.find(spec(), tools)


def test_the_record_names_files_absolutely(tools: Tools, tmp_path: Path) -> None:
    here = site.asked(spec(kubeconfig="kubeconfig"), tools)

    assert site.record_of(spec(kubeconfig="kubeconfig"), tools, here).kubeconfig == str(tmp_path / "kubeconfig")
    assert site.kubeconfig(spec(kubeconfig="~/kubeconfig"), tools) == str(tmp_path / "kubeconfig")


def test_another_namespace_than_the_one_written_down_is_refused(tools: Tools) -> None:
    written(tools, namespace="old")

    with pytest.raises(RequestError) as error:
        site.refuse_other_site(spec(), tools, site.asked(spec(), tools))

    assert error.value.lines() == [
        "cluster lab is in namespace old of context lab (https://192.0.2.1:6443); now namespace team of context lab "
        "(https://192.0.2.1:6443) is asked for",
        "  at lab.yaml",
        "  -> For a second cluster, give it another name: a name is one cluster on this machine. To move this one, "
        "remove it there first: invoke cluster.down",
    ]


def test_a_place_given_on_the_command_line_is_never_passed_over(tools: Tools) -> None:
    written(tools)
    typed = Typed("lab", ("kuberay.context=other", "head.cpus=2"))

    with pytest.raises(RequestError) as error:
        site.find(spec(context="other"), replace(tools, typed=typed))

    assert error.value.lines() == [
        "cluster lab is in namespace team of context lab (https://192.0.2.1:6443); now namespace team of context other "
        "(https://192.0.2.2:6443) is asked for",
        "  at lab.yaml",
        "  -> To mean that one, leave out --set kuberay.context=other. For a second cluster, give it another name: a "
        "name is one cluster on this machine. To move this one, remove it there first: "
        "invoke cluster.down -f lab --set head.cpus=2",
    ]
    same = replace(tools, typed=Typed("lab", ("kuberay.context=lab",)))
    assert site.find(spec(context="lab"), same).kube.context == "lab"


def test_a_file_that_names_another_place_by_now_is_said(tools: Tools) -> None:
    assert site.moved(spec(), tools) == ""
    written(tools)
    assert site.moved(spec(), tools) == ""
    assert site.moved(spec(namespace="prod", context="other"), tools) == (
        "this is the cluster in namespace team of context lab, where it was made; "
        "its file now says namespace prod, context other"
    )


def test_another_kubernetes_than_the_one_written_down_is_refused(tools: Tools) -> None:
    written(tools)

    with pytest.raises(RequestError):
        site.refuse_other_site(spec(context="other"), tools, site.asked(spec(context="other"), tools))


def test_a_server_that_got_another_address_is_known_by_its_uid(tools: Tools, uids: dict[str, str]) -> None:
    written(tools, server="https://192.0.2.7:6443", kubernetes="uid-1")
    uids["https://192.0.2.1:6443"] = "uid-1"

    site.refuse_other_site(spec(), tools, site.asked(spec(), tools))
    assert site.find(spec(), tools).kube.server == "https://192.0.2.1:6443"


@pytest.mark.parametrize(("server", "uid"), [("https://192.0.2.1:6443", "uid-2"), ("https://192.0.2.7:6443", "")])
def test_another_kubernetes_under_the_same_context_is_not_asked(
    tools: Tools, uids: dict[str, str], server: str, uid: str
) -> None:
    written(tools, server=server, kubernetes="uid-1")
    uids["https://192.0.2.1:6443"] = uid

    with pytest.raises(PrerequisiteError) as error:
        site.find(spec(), tools)
    assert error.value.lines() == [
        "cluster lab is on another Kubernetes than the one that context lab leads to now",
        f"  at it was made on {server}; now https://192.0.2.1:6443 answers",
        "  -> Give the kubeconfig of that one (KUBECONFIG=...). If that Kubernetes is gone for good, or only got "
        f"another address (then what was written down is made anew): rm -r {tools.state}",
    ]
    with pytest.raises((PrerequisiteError, RequestError)):
        site.refuse_other_site(spec(), tools, site.asked(spec(), tools))


def test_the_file_may_lead_to_the_kubernetes_that_the_context_lost(tools: Tools, uids: dict[str, str]) -> None:
    written(tools, kubernetes="uid-2")
    uids |= {"https://192.0.2.1:6443": "uid-1", "https://192.0.2.2:6443": "uid-2"}

    assert site.find(spec(context="other"), tools).kube.server == "https://192.0.2.2:6443"


def test_a_kubernetes_is_known_by_a_namespace_that_all_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    system = {"metadata": {"name": "kube-system", "uid": "uid-1"}}

    assert records.identity(FakeKube((NAMESPACE, system))) == "uid-1"  # type: ignore[arg-type]
    assert records.identity(FakeKube(forbidden=["namespaces"])) == ""  # type: ignore[arg-type]


def test_a_ray_cluster_of_somebody_else_is_refused() -> None:
    kube = FakeKube((RAY_CLUSTER, named("lab")))

    with pytest.raises(RequestError) as error:
        site.ray_cluster(fake_site(kube))

    assert error.value.lines() == [
        "a RayCluster called lab is in namespace team, and Trainyard did not make it",
        "  at context lab",
        "  -> Give yours another name (`name:` in the cluster file); or use that one: `backend: existing` with "
        "`existing: {service: team/lab-head-svc}`.",
    ]


def test_a_ray_cluster_of_ours_is_found() -> None:
    there: Site = fake_site(FakeKube((RAY_CLUSTER, named("lab", cluster="lab"))))

    assert site.ray_cluster(there)
    assert site.ray_cluster(fake_site(FakeKube())) is None


def test_pods_come_with_the_head_first_and_then_by_age() -> None:
    pods = [named(name, ray="lab") for name in ("lab-w-b", "lab-w-a", "lab-head")]
    for one, created in zip(
        pods, ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"), strict=True
    ):
        one["metadata"]["creationTimestamp"] = created
    pods[2]["metadata"]["labels"]["ray.io/node-type"] = "head"

    found = site.pods(fake_site(FakeKube(*((POD, one) for one in pods))))

    assert [one["metadata"]["name"] for one in found] == ["lab-head", "lab-w-b", "lab-w-a"]
