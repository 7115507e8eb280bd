"""Where a cluster lives on Kubernetes, written down and found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named
from tests.unit.fake_kube import location as fake_location
from tests.unit.kube_pods import head, pod
from trainyard.backends.contract import Site
from trainyard.backends.kuberay import location
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.snapshot import node_pods
from trainyard.backends.shared import owner, record
from trainyard.errors import RequestError
from trainyard.seams.kube.types import POD, RAY_CLUSTER
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection

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
SPEC = ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", "image": "r:5000/ray:1"})


def section(**more: Any) -> KuberaySection:
    return KuberaySection.model_validate({"namespace": "team", **more})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Return a site with a kubeconfig of two contexts."""
    config = tmp_path / "kubeconfig"
    config.write_text(KUBECONFIG)
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(config), "PATH": ""}
    return Site(tmp_path / "state", environ, "kuberay", source=Path("lab.yaml"), directory=tmp_path)


def made(site: Site, **more: Any) -> Location:
    """Write down a cluster that was made where this section says."""
    found = location.of_section(SPEC, site, section(**more))
    location.write(site, found)
    return found


def test_a_cluster_is_found_at_its_recorded_location(site: Site) -> None:
    made(site, context="other", namespace="old")
    found = location.find(SPEC, site, section())
    assert (found.kube.server, found.namespace) == ("https://192.0.2.2:6443", "old")


def test_the_record_bears_the_name_of_the_backend_that_calls(site: Site) -> None:
    theirs = replace(site, backend="microk8s")
    made(theirs)
    assert record.read_json(site.state / "cluster.json")["backend"] == "microk8s"
    assert location.read(theirs)
    assert location.read(site) is None


def test_the_record_names_files_absolutely(site: Site, tmp_path: Path) -> None:
    for written in ("kubeconfig", "~/kubeconfig"):
        found = location.of_section(SPEC, site, section(kubeconfig=written))
        assert location.kubeconfig(found.kube) == str(tmp_path / "kubeconfig")


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, "namespace team of context lab (https://192.0.2.1:6443)"),
        (
            {"namespace": "old", "context": "other"},
            "namespace old of context other (https://192.0.2.2:6443)",
        ),
    ],
)
def test_another_location_than_the_one_written_down_is_refused(
    site: Site, asked: dict[str, str], shown: str
) -> None:
    made(site, namespace="old")
    with pytest.raises(RequestError) as error:
        location.refuse_other(site, location.of_section(SPEC, site, section(**asked)))

    assert error.value.lines() == [
        (
            f"cluster lab is in namespace old of context lab (https://192.0.2.1:6443); now {shown} "
            "is asked for"
        ),
        "  at lab.yaml",
        "  -> To use the recorded cluster, change the file back, or give its kubeconfig "
        "(KUBECONFIG=...). A second cluster needs another name. To move this cluster, remove it "
        "there first: trainyard cluster.down. If that Kubernetes no longer exists, or has another "
        "address: "
        f"rm -r {site.state}",
    ]


def test_a_location_given_on_the_command_line_is_never_passed_over(site: Site) -> None:
    made(site)
    typed = replace(site, overrides=("kuberay.context=other",))
    with pytest.raises(RequestError) as error:
        location.find(SPEC, typed, section(context="other"))
    assert error.value.hint
    assert error.value.hint.startswith(
        "To use the recorded cluster, leave out --set kuberay.context=other. A second"
    )
    same = replace(site, overrides=("kuberay.context=lab",))
    assert location.find(SPEC, same, section(context="lab")).kube.context == "lab"


def test_another_kubernetes_under_the_same_context_is_not_asked(site: Site) -> None:
    made(site)
    (site.directory / "kubeconfig").write_text(KUBECONFIG.replace("192.0.2.1", "192.0.2.7"))
    with pytest.raises(RequestError) as error:
        location.find(SPEC, site, section())
    assert error.value.what == (
        "cluster lab is in namespace team of context lab (https://192.0.2.1:6443); now namespace "
        "team of context lab "
        "(https://192.0.2.7:6443) is asked for"
    )


def test_a_foreign_ray_cluster_is_refused_and_an_own_one_found() -> None:
    with pytest.raises(RequestError) as error:
        location.ray_cluster(fake_location(FakeKube((RAY_CLUSTER, named("lab")))))
    assert error.value.lines() == [
        "a RayCluster called lab is in namespace team, and Trainyard did not make it",
        "  at context lab",
        "  -> Give yours another name (`name:` in the cluster file); or use that RayCluster: "
        "`backend: existing` with "
        "`existing: {service: team/lab-head-svc}`.",
    ]
    assert location.ray_cluster(fake_location(FakeKube((RAY_CLUSTER, named("lab", cluster="lab")))))
    assert location.ray_cluster(fake_location(FakeKube())) is None


def test_a_shell_is_in_the_container_of_the_pod_that_stays() -> None:
    own = (pod("lab-head-a", group="head", leaving=True), head(), pod("lab-gpu-worker-x7k2p"))
    where = fake_location(FakeKube(*((POD, each) for each in own)))
    nodes = node_pods(where)
    assert set(nodes) == {"head", "gpu-x7k2p"}

    assert location.exec_words(where, nodes["head"], "", terminal=True) == [
        *(
            "--namespace",
            "team",
            "exec",
            "-it",
            "lab-head-h1",
            "--container",
            "ray-head",
            "--",
            "bash",
        )
    ]

    words = location.exec_words(where, nodes["gpu-x7k2p"], "nvidia-smi", terminal=False)
    assert words[2:] == [
        "exec",
        "-i",
        "lab-gpu-worker-x7k2p",
        "--container",
        "ray-worker",
        "--",
        "bash",
        "-c",
        "nvidia-smi",
    ]


def test_the_user_is_the_one_who_made_the_cluster_unless_one_is_given(site: Site) -> None:
    alice = replace(site, environ={**site.environ, "TRAINYARD_OWNER": "alice"})
    ci = replace(site, environ={**site.environ, "TRAINYARD_OWNER": "ci"})
    assert location.of_section(SPEC, site, section()).owner == owner.current({})
    made(alice)
    assert location.find(SPEC, site, section()).owner == "alice"
    assert location.find(SPEC, ci, section()).owner == "ci"
