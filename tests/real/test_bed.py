"""The bed itself: what a cluster on it shows to its users is what a cluster anywhere shows to them."""

from __future__ import annotations

from pathlib import Path

from tests.bed import hosts, kubernetes, publishing
from tests.bed.engine import BedEngine
from tests.bed.hosts import Size

BASE = "trainyard-bed/base:1"


def test_a_bed_leaves_nothing_behind(engine: BedEngine, tmp_path: Path) -> None:
    with kubernetes.kube_bed(engine, tmp_path / "small", count=1, sizes=[Size(cpus=1, gibibytes=2)]) as small:
        small.publish(BASE)
        assert small.allocatable(small.hosts[0], "cpu") == "1"
        assert small.allocatable(small.hosts[0], "memory") == "2Gi"
        containers = {small.hosts[0].container, publishing.container_of(small.registry)}
        volumes = _volumes(engine, containers)
        assert len(volumes) == 4
        assert containers <= _names(engine)
    assert not containers & _names(engine)
    assert not volumes & set(engine.docker("volume", "ls", "-q").stdout.split())


def test_hosts_of_a_test_run_that_was_killed_are_removed_by_the_next(engine: BedEngine, tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    # The first process of every machine has another start time than this.
    left = hosts.start(engine, tmp_path / "left", count=1, owner="1:1")[0]
    with hosts.bare_hosts(engine, tmp_path / "next", count=1):
        assert left.container not in _names(engine)


def _names(engine: BedEngine) -> set[str]:
    return set(engine.docker("ps", "-a", "--format", "{{.Names}}").stdout.split())


def _volumes(engine: BedEngine, containers: set[str]) -> set[str]:
    form = "{{range .Mounts}}{{.Name}} {{end}}"
    return set(engine.docker("inspect", "--format", form, *containers).stdout.split())
