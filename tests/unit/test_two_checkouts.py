"""A name is one cluster on this machine: a second checkout with that name is told its owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.backends.shared.record import write_made_from
from trainyard.errors import RequestError
from trainyard.operations import clusters
from trainyard.operations.cluster import Cluster


def cluster(home: Path, checkout: str, *, overrides: tuple[str, ...] = ()) -> Cluster:
    (home / checkout / "clusters").mkdir(parents=True, exist_ok=True)
    (home / checkout / "clusters" / "lab.yaml").write_text("{name: lab, backend: local}")
    return clusters.find("lab", {"HOME": str(home)}, directory=home / checkout, overrides=overrides)


def made(home: Path, checkout: str) -> Cluster:
    """Return the cluster of a checkout as if `cluster.up` had made it."""
    found = cluster(home, checkout)
    found.site.state.mkdir(parents=True)
    write_made_from(found.site.state, Path(found.loaded.source), ())
    return found


def test_a_second_checkout_is_told_the_cluster_s_owner_and_not_connected(tmp_path: Path) -> None:
    first = made(tmp_path, "first").loaded.source
    second = cluster(tmp_path, "second")
    for command in (clusters.connect, clusters.status, clusters.plan_up, clusters.plan_down):
        with pytest.raises(RequestError) as caught:
            command(second)
        assert caught.value.lines() == [
            f"cluster lab was made from {first}, not from this file",
            f"  at {tmp_path}/second/clusters/lab.yaml",
            "  -> Give yours another name (`name:` in the file). For that cluster: "
            f"trainyard cluster.status -f {first}",
        ]


def test_another_file_of_the_same_directory_means_the_same_cluster(tmp_path: Path) -> None:
    made(tmp_path, "first")
    (tmp_path / "first" / "clusters" / "larger.yaml").write_text(
        "{name: lab, backend: local, head: {cpus: 2}}"
    )
    larger = clusters.find("larger", {"HOME": str(tmp_path)}, directory=tmp_path / "first")
    assert clusters.status(larger).state == "absent"


def test_a_checkout_that_was_moved_keeps_its_cluster(tmp_path: Path) -> None:
    made(tmp_path, "first")
    (tmp_path / "first").rename(tmp_path / "moved")
    assert clusters.status(cluster(tmp_path, "moved")).state == "absent"


def test_a_cluster_named_on_the_command_line_is_removed_from_anywhere(tmp_path: Path) -> None:
    made(tmp_path, "first")
    assert clusters.plan_down(cluster(tmp_path, "second", overrides=("name=lab",)))
