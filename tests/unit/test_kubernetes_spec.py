"""The section `kuberay` of a cluster file: what it means, and the example that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from trainyard import paths
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import (
    Autoscaler,
    KuberaySection,
    KubeVolume,
    Operator,
    PodSecurity,
    Requests,
    Storage,
    Toleration,
)
from trainyard.spec.load import load_cluster


@pytest.fixture
def example(tmp_path: Path) -> ClusterSpec:
    """Return clusters/kuberay.yaml with every commented line of its section taken at its word."""
    text = (paths.shipped("clusters") / "kuberay.yaml").read_text(encoding="utf-8")
    head, _, section = text.partition("# kuberay:")
    shown = re.sub(r"(?m)^# ?", "", section)
    groups = re.sub(r"(?m)^# (- \{name)", r"  \1", head)
    path = tmp_path / "example.yaml"
    path.write_text(f"{groups}kuberay:{shown}", encoding="utf-8")
    return load_cluster(path).spec


def test_the_example_shows_every_key_and_all_of_them_are_right(example: ClusterSpec) -> None:
    section = example.kuberay
    assert section.storage is not None
    # An existing claim admits no further settings, and a volume has one source.
    expected: dict[type[BaseModel], set[str]] = {
        KuberaySection: set(),
        Operator: set(),
        Requests: set(),
        Autoscaler: set(),
        PodSecurity: set(),
        Toleration: set(),
        Storage: {"claim"},
        KubeVolume: {"config_map", "secret", "host_path", "empty_dir"},
    }

    parts: tuple[BaseModel, ...] = (
        section,
        section.operator,
        section.requests,
        section.autoscaler,
        section.security,
        section.tolerations[0],
        section.storage,
        section.volumes[0],
    )

    assert {
        type(part): set(type(part).model_fields) - part.model_fields_set for part in parts
    } == expected
    assert [group.name for group in example.workers] == ["worker", "gpu", "burst"]


@pytest.mark.parametrize(
    ("target", "section"),
    [
        ("/tmp/ray", {}),
        ("/dev/shm/", {}),
        ("/outputs", {"storage": {"claim": "mine"}}),
        ("/out", {"outputs": "/out/"}),
        ("/home/trainyard", {"security": {"run_as_user": 1000}}),
    ],
)
def test_a_volume_is_not_where_every_node_has_one(target: str, section: dict[str, object]) -> None:
    volumes = [{"target": "/data", "claim": "a"}, {"target": target, "claim": "b"}]
    with pytest.raises(ValidationError, match="must be none of /tmp/ray, /dev/shm, /out"):
        KuberaySection.model_validate({**section, "volumes": volumes}, context={})


def test_a_volume_may_be_where_another_file_has_its_outputs() -> None:
    volumes = [
        {"target": "/outputs", "claim": "a"},
        {"target": "/tmp/ray/x", "claim": "b"},
        {"target": "/home/trainyard", "claim": "c"},
    ]
    section = {"outputs": "/out", "volumes": volumes}
    assert len(KuberaySection.model_validate(section, context={}).volumes) == 3
