"""Fixtures of the real tests: places to work in, ready clusters, Docker engines, a cloud."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import areas, tiers
from tests.bed import bed, ec2, host, kubernetes, programs
from tests.bed.ec2 import Cloud
from tests.bed.engine import BedEngine
from tests.bed.host import DockerHost
from tests.bed.kubernetes import KubeBed
from tests.bed.places import need
from tests.real import kube as kubernetes_by_hand
from tests.real.kube import RAY_IMAGE
from tests.real.yard import HEAD_AND_TWO_WORKERS, Yard


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Yard]:
    """Give a place to work in without any cluster; clusters that the test makes are removed."""
    yard = Yard(tmp_path)
    yield yard
    yard.remove_all()


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a ready cluster that all tests share.

    It has a head and workers gpu-0, gpu-1 (2 CPUs, 2 simulated GPUs each). A test that kills nodes
    must make a cluster of its own.
    """
    yard = Yard(tmp_path_factory.mktemp("yard"))
    yard.write_cluster(HEAD_AND_TWO_WORKERS)
    try:
        yard.run("cluster.up")
        yield yard
    finally:
        yard.remove_all()


@pytest.fixture(scope="session")
def engine() -> Iterator[BedEngine]:
    """Give the tests' own Docker engine with the bed's images; a test removes what it makes."""
    with bed.shared_engine() as engine:
        yield engine


@pytest.fixture
def private_engine(
    engine: BedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BedEngine]:
    """Give an empty Docker engine that a test may restart and configure; `load` adds images."""
    with bed.private_engine(tmp_path_factory.mktemp("engine")) as private:
        yield private


@pytest.fixture(scope="session")
def docker_host(
    engine: BedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DockerHost]:
    """Give a remote Docker host: sshd and an engine of its own, in a container."""
    with host.docker_host(engine, tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture(scope="session")
def kube(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeBed]:
    """Give a Kubernetes cluster of three hosts without the KubeRay operator, shared by tests.

    A test that stops a kubelet or the API server, or adds GPUs, undoes that itself.
    """
    need(programs.missing())
    with kubernetes.kube_bed(engine, tmp_path_factory.mktemp("kube")) as made:
        yield made


@pytest.fixture(scope="session")
def operator(kube: KubeBed) -> Iterator[None]:
    """Have an administrator's KubeRay operator installed until the tests end.

    Tests that install the operator themselves run before (`pytest_collection_modifyitems`).
    """
    kube.publish(RAY_IMAGE)
    with kubernetes_by_hand.operator(kube):
        yield


@pytest.fixture(scope="module")
def cloud(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Give a region of AWS with a default VPC and no instances, shared by the tests of a module."""
    with ec2.cloud(engine, tmp_path_factory.mktemp("ec2")) as made:
        yield made


# FIXTURE: the marks of the tests that use it.
MARKS = {
    "engine": ("engine",),
    "private_engine": ("engine",),
    "docker_host": ("engine",),
    "kube": ("engine", "kubernetes"),
    "cloud": ("engine", "ec2"),
    "page": ("browser",),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests marked `breaking` last; mark each test with its needs and its tier."""
    items.sort(key=lambda item: item.get_closest_marker("breaking") is not None)
    for item in items:
        if isinstance(item, pytest.Function):
            for mark in {mark for fixture in item.fixturenames for mark in MARKS.get(fixture, ())}:
                item.add_marker(mark)
        tier = tiers.tier_of({mark.name for mark in item.iter_markers()})
        item.add_marker(tiers.mark_of(tier))
        _refuse_unless_named(item.path.relative_to(areas.ROOT), tier)


def _refuse_unless_named(module: Path, tier: str) -> None:
    """Reject a module whose row in tests/areas.py lacks the tier of its tests."""
    named = areas.tiers_of(str(module))
    if module.is_relative_to("tests/real") and tier not in (tiers.CORE, *named):
        raise pytest.UsageError(
            f"{module} has tests of the tier {tier}: its row in tests/areas.py lacks it"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Treat SIGTERM as Ctrl-C, so that the clusters of an ended test run are removed too.

    Ctrl-C is made effective again: a shell starts background jobs with Ctrl-C ignored, their
    children inherit that, and tests interrupt such children.
    """
    for mark, meaning in {
        "core": "of the tier of `make test`, which runs after every change",
        "lifecycle": (
            "the life of a cluster on a backend: what a change to all of them runs (tests/areas.py)"
        ),
        "engine": "needs the Docker engine of the bed",
        "browser": "needs a browser",
        "kubernetes": "needs hosts of the bed, and so its Docker engine too",
        "breaking": "breaks hosts, or has an administrator's operator: a cluster apart",
        "bed": "is of what plays a cloud here, not of the product",
        "ec2": "has a cloud of the bed, and so its Docker engine too",
        "waiting": "waits for most of its time, on a cluster of its own",
        "microk8s": "has bare hosts of its own, and makes them a cluster",
        **{tiers.mark_of(tier): f"every test of the tier {tier} has it" for tier in tiers.TIERS},
    }.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)

    # Build machines set this variable, users do not: with it, output to a pipe comes in another
    # order.
    os.environ.pop("PYTHONUNBUFFERED", None)
