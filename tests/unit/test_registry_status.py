"""The contents of a registry, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import docker
import pytest

from trainyard.console.report import Table
from trainyard.registry.status import Content, RegistryStatus, Repository, Tag, content_of
from trainyard.registry.target import Target
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.api import Blob, Manifest, RegistryApi
from trainyard.seams.registry.errors import DamagedError
from trainyard.spec.docker import Registry
from trainyard.tasks import registry

BASE = Blob("sha256:base", 1000)


def image(digest: str, *layers: Blob) -> Manifest:
    return Manifest(digest, "", Blob(f"{digest}-config", 10), (BASE, *layers), (), b"12345")


@dataclass(frozen=True)
class FakeRegistry:
    """A registry: repository -> tag or digest -> manifest."""

    held: Mapping[str, Mapping[str, Manifest]]

    def repositories(self) -> Iterator[str]:
        yield from self.held

    def tags(self, name: str) -> tuple[str, ...]:
        return tuple(tag for tag in self.held[name] if not tag.startswith("sha256:"))

    def manifest(self, name: str, reference: str) -> Manifest | None:
        if reference == "damaged":
            raise DamagedError("what the registry holds is damaged")
        return self.held[name].get(reference)


def test_layers_that_are_shared_count_once() -> None:
    first, second = (
        image("sha256:1", Blob("sha256:a", 100)),
        image("sha256:2", Blob("sha256:b", 200)),
    )
    held = {"ray": {"2": second, "1": first, "same-as-1": first}, "schola": {"1": first}}
    tags = (
        Tag("1", "sha256:1", 1115),
        Tag("2", "sha256:2", 1215),
        Tag("same-as-1", "sha256:1", 1115),
    )
    repositories = Repository("ray", tags, 1330), Repository("schola", tags[:1], 1115)
    assert content_of(cast("RegistryApi", FakeRegistry(held))) == Content(repositories, 1330)


def test_every_platform_counts_and_a_damaged_tag_hides_nothing() -> None:
    index = Manifest("sha256:index", "", None, (), ("sha256:amd", "sha256:arm"), b"123")
    platforms = {"sha256:amd": image("sha256:amd"), "sha256:arm": image("sha256:arm")}
    held = {"ray": {"1": index, **platforms, "damaged": image("sha256:2")}, "emptied": {}}
    tags = (
        Tag("1", "sha256:index", 1033),
        Tag("damaged", None, 0, "what the registry holds is damaged"),
    )
    assert content_of(cast("RegistryApi", FakeRegistry(held))).repositories == (
        Repository("ray", tags, 1033),
    )


TARGET = Target(
    Registry(address="127.0.0.1:32000", insecure=True),
    Engine("unix:///docker.sock", cast(docker.APIClient, None), {}),
    {},
    backend="compose",
)
NAME = "trainyard-registry-127.0.0.1-32000"
UP = RegistryStatus(
    state="up",
    container=Container("1", NAME, "registry:2", {}, "running"),
    volume=NAME,
    disk_free=50 * 1024**3,
    trusted=True,
    content=Content((Repository("ray", (Tag("1", "sha256:0123456789abcdef", 2048),), 2048),), 2048),
)


def test_status_lists_repositories_tags_and_sizes() -> None:
    first, table, last = registry.status_report(TARGET, UP).body
    assert first == "registry 127.0.0.1:32000 is up (plain HTTP, no login)"
    assert isinstance(table, Table)
    assert table.rows == [("ray", "1", "2.0 KiB", "sha256:0123456789ab")]
    assert last == "together 2.0 KiB, as layers are shared; 50.0 GiB of disk are free"


@pytest.mark.parametrize(
    ("target", "now", "following"),
    [
        (TARGET, UP, "image.verify"),
        (TARGET, replace(UP, content=Content((), 0)), "image.push"),
        (replace(TARGET, backend="local"), UP, "cluster.up -f compose"),
        (replace(TARGET, backend="kuberay"), UP, "cluster.up"),
        (TARGET, replace(UP, state="down", content=None), "registry.up"),
        (TARGET, replace(UP, trusted=False), "registry.trust"),
    ],
)
def test_the_next_command_depends_on_registry_state_and_backend(
    target: Target, now: RegistryStatus, following: str
) -> None:
    assert registry.status_report(target, now).next == f"trainyard {following}"
