from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from trainyard.spec.cluster import ClusterSpec, Head, WorkerGroup
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
    burst = WorkerGroup(name="burst", min=0, max=5, cpus=4, memory=8 * 2**30, idle_timeout=300.0, count=None)
    assert (spec.head, spec.workers[1]) == (Head(cpus=2, memory=4 * 2**30), burst)
    assert spec.env == {"NCCL_DEBUG": "WARN"}
    nodes = [(node.name, node.group, node.gpus) for node in spec.nodes()]
    assert nodes == [("head", "head", 0), ("gpu-0", "gpu", 1), ("gpu-1", "gpu", 1)]


def test_two_lines_are_a_cluster_with_a_head(tmp_path: Path) -> None:
    spec = load(tmp_path, "name: lab\nbackend: local\n")
    assert ([node.name for node in spec.nodes()], spec.auth) == (["head"], "token")


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8265", "http://127.1.2.3", "http://localhost:8265/", "http://[::1]:8265"]
)
def test_loopback_needs_no_token(address: str, tmp_path: Path) -> None:
    text = f'name: lab\nbackend: existing\nauth: none\nexisting: {{address: "{address}"}}\n'
    assert load(tmp_path, text).auth == "none"


@pytest.mark.parametrize(
    "image", ["schola", "ray:2.60.0-cpu", "registry:5000/team/ray", "Example.org/a/b:T-1", "a/b@sha256:" + "0" * 64]
)
def test_image_references_are_accepted(image: str, tmp_path: Path) -> None:
    assert load(tmp_path, f'name: lab\nbackend: local\nimage: "{image}"\n').image == image


def test_a_secret_in_the_wrong_place_is_not_in_pydantics_own_message() -> None:
    with pytest.raises(ValidationError) as refused:
        ClusterSpec.model_validate({"name": "lab", "backend": "local", "token": "hunter2"})
    assert "hunter2" not in str(refused.value)
