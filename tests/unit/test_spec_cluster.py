from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.groups import Head, WorkerGroup
from trainyard.spec.load import load_cluster

DESIGN = """\
name: lab                      # lower case, digits, '-'; at most 40 characters
backend: local
image: schola                  # a directory of images/, or a full reference
head:    {cpus: 2, memory: 4GiB}
workers:
  - {name: gpu, count: 2, cpus: 8, memory: 32GiB, gpus: 1}
  - {name: burst, min: 0, max: 5, cpus: 4, memory: 8GiB, idle_timeout: 5m}
env: {NCCL_DEBUG: WARN}        # for every Ray node
registry: {address: "192.0.2.10:32000", insecure: true}
"""


def load(tmp_path: Path, text: str) -> ClusterSpec:
    (tmp_path / "lab.yaml").write_text(text)
    return load_cluster(tmp_path / "lab.yaml").spec


def test_the_example_of_the_design_loads_and_every_node_has_a_name(tmp_path: Path) -> None:
    spec = load(tmp_path, DESIGN)
    burst = WorkerGroup(
        name="burst", min=0, max=5, cpus=4, memory=8 * 2**30, idle_timeout=300.0, count=None
    )
    assert (spec.head, spec.workers[1]) == (Head(cpus=2, memory=4 * 2**30), burst)
    assert spec.env == {"NCCL_DEBUG": "WARN"}
    nodes = [(node.name, node.group, node.gpus) for node in spec.nodes()]
    assert nodes == [("head", "head", 0), ("gpu-0", "gpu", 1), ("gpu-1", "gpu", 1)]


def test_two_lines_are_a_cluster_with_a_head(tmp_path: Path) -> None:
    spec = load(tmp_path, "name: lab\nbackend: local\n")
    assert ([node.name for node in spec.nodes()], spec.auth) == (["head"], "token")


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8265", "http://127.1.2.3", "http://localhost:8265/", "http://[::1]:8265"],
)
def test_loopback_needs_no_token(address: str, tmp_path: Path) -> None:
    text = f'name: lab\nbackend: existing\nauth: none\nexisting: {{address: "{address}"}}\n'
    assert load(tmp_path, text).auth == "none"


@pytest.mark.parametrize(
    "image",
    [
        "schola",
        "ray:2.60.0-cpu",
        "registry:5000/team/ray",
        "Example.org/a/b:T-1",
        "a/b@sha256:" + "0" * 64,
    ],
)
def test_image_references_are_accepted(image: str, tmp_path: Path) -> None:
    assert load(tmp_path, f'name: lab\nbackend: local\nimage: "{image}"\n').image == image


def test_a_secret_in_the_wrong_place_is_not_in_pydantics_own_message() -> None:
    with pytest.raises(ValidationError) as refused:
        ClusterSpec.model_validate({"name": "lab", "backend": "local", "token": "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("resources: {CPU: 2}", "workers.0.resources.CPU: is Ray's own: write cpus"),
        ("resources: {A100: 0.5}", "workers.0.resources.A100: must be a whole number, got 0.5"),
        (
            "labels: {ray.io/node-group: x}",
            "workers.0.labels.ray.io/node-group: is set by Trainyard or Ray",
        ),
        (
            "ray_start: {num-cpus: 2}",
            "workers.0.ray_start.num-cpus: cannot be given: it follows from cpus",
        ),
        (
            "ray_start: {metric-export-port: 2}",
            "workers.0.ray_start.metric-export-port: is not a parameter of `ray start` that can "
            "be given; "
            "did you mean 'metrics-export-port'?",
        ),
        ("ray_start: {log-style: true}", "workers.0.ray_start.log-style: needs a value, got true"),
        (
            "ray_start: {no-redirect-output: x}",
            (
                "workers.0.ray_start.no-redirect-output: is a flag: write true, or leave it out, got "
                '"x"'
            ),
        ),
    ],
)
def test_a_group_with_settings_that_ray_rejects_is_refused(
    group: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError) as caught:
        load(tmp_path, f"name: lab\nbackend: local\nworkers:\n  - {{name: a, {group}}}\n")
    assert [str(problem).partition("lab.yaml:4: ")[2] for problem in caught.value.problems] == [
        message
    ]


def test_node_settings_for_an_existing_cluster_are_refused(tmp_path: Path) -> None:
    text = "name: lab\nbackend: existing\nexisting: {address: http://127.0.0.1:8265}\nauth: none\n"
    with pytest.raises(
        RequestError, match=r"head\.labels: has no effect with the backend existing"
    ):
        load(tmp_path, f"{text}head: {{labels: {{zone: a}}}}\n")


def test_a_group_asks_kubernetes_for_no_more_than_it_may_use(tmp_path: Path) -> None:
    text = (
        "name: lab\nbackend: kuberay\nhead: {cpus: 2}\nkuberay: {groups: {head: {requests: "
        "{cpus: 3}}}}\n"
    )
    with pytest.raises(
        RequestError, match="must be at most what the node may use, which is cpus of head"
    ):
        load(tmp_path, text)


def test_a_group_has_an_image_of_its_own_or_the_cluster_s(tmp_path: Path) -> None:
    text = (
        "name: lab\nbackend: kuberay\nimage: ray-cpu\nworkers: [{name: gpu, image: "
        "isaac-ray}, {name: cpu}]\n"
    )
    spec = load(tmp_path, text)
    assert [spec.image_of(name) for name in spec.groups()] == ["ray-cpu", "isaac-ray", "ray-cpu"]
    one = spec.with_image("schola")
    assert {one.image_of(name) for name in one.groups()} == {"schola"}


def test_on_ec2_all_nodes_are_containers_or_none(tmp_path: Path) -> None:
    text = "name: lab\nbackend: ec2\nworkers: [{name: gpu, image: isaac-ray}]\n"
    with pytest.raises(
        RequestError, match="all nodes run an image or none does, and these do not: head"
    ):
        load(tmp_path, text)
