"""What a registry needs at its address, and what its user is warned of."""

from __future__ import annotations

import io
from typing import cast

import docker
import pytest
from docker.errors import ImageNotFound

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.progress import for_stream
from trainyard.registry import room, up
from trainyard.registry.site import Site
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.once import Once
from trainyard.spec.docker import Registry

GIBIBYTE = 1024**3


def site(address: str, *, docker_host: str = "unix:///docker.sock", **settings: object) -> Site:
    registry = Registry.model_validate({"address": address, **settings})
    return Site(registry, Engine(docker_host, cast(docker.APIClient, None), {}), {})


def test_a_disk_that_is_as_good_as_full_is_refused() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        room.disk_warnings(GIBIBYTE - 1024**2)
    assert str(caught.value) == (
        "too little disk for a registry: 1023.0 MiB free where Docker keeps its data\n"
        "  -> Make room: docker system df, docker system prune"
    )


def test_a_small_disk_is_a_warning_and_one_that_cannot_be_seen_is_none() -> None:
    assert room.disk_warnings(5 * GIBIBYTE) == [
        "only 5.0 GiB of disk are free where Docker keeps its data, and training images are large"
    ]
    assert room.disk_warnings(30 * GIBIBYTE) == room.disk_warnings(None) == []


def test_loopback_needs_no_warning() -> None:
    assert room.address_warnings(site("127.0.0.1:32000", insecure=True), "127.0.0.1") == []


def test_an_open_registry_on_the_network_is_warned_of() -> None:
    assert room.address_warnings(site("192.0.2.10:32000", insecure=True), "192.0.2.10") == [
        "whoever reaches 192.0.2.10:32000 can push to it: give it registry.username and password_env"
    ]


def test_a_password_without_tls_is_warned_of() -> None:
    login = {"username": "ann", "password_env": "PASSWORD"}
    assert room.address_warnings(site("192.0.2.10:32000", insecure=True, **login), "192.0.2.10") == [
        "the password travels in clear text: leave out `insecure: true`, and TLS is made for you"
    ]
    assert room.address_warnings(site("192.0.2.10:32000", **login), "192.0.2.10") == []


def test_a_host_name_that_means_loopback_here_is_warned_of() -> None:
    assert room.address_warnings(site("lab-1:32000", insecure=True), "127.0.1.1") == [
        "lab-1 is 127.0.1.1 here, so that no other host can reach the registry"
    ]


def test_amazons_registry_is_not_ours_to_run() -> None:
    with pytest.raises(RequestError) as caught:
        room.check_kind(site("123456789012.dkr.ecr.eu-west-1.amazonaws.com", login="ecr"))
    assert caught.value.what == (
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com is Amazon's: registry.up runs registries of one's own"
    )


def test_a_password_that_is_not_there_is_told_before_anything_is_made() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        up.plan_up(site("127.0.0.1:32000", username="ann", password_env="PASSWORD"))
    assert caught.value.what == ("$PASSWORD is not set: it is to hold the password of ann for registry 127.0.0.1:32000")


def test_loopback_of_another_host_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        room.check_kind(site("127.0.0.1:32000", docker_host="ssh://ops@192.0.2.7", insecure=True))
    assert str(caught.value) == (
        "127.0.0.1:32000 would be reachable on 192.0.2.7 only, which is where Docker runs\n"
        "  -> Give registry.address an address of 192.0.2.7 that this machine reaches."
    )


class FarApi:
    """An engine elsewhere, with or without the registry's image."""

    def __init__(self, *images: str) -> None:
        self.images = images

    def info(self) -> dict[str, str]:
        return {"DockerRootDir": "/var/lib/docker"}

    def inspect_image(self, reference: str) -> dict[str, str]:
        if reference in self.images:
            return {"Id": "sha256:1"}
        raise ImageNotFound("no such image")


def test_the_disk_of_another_host_is_checked_when_the_image_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(address="192.0.2.7:32000", insecure=True)
    far = Site(registry, Engine("ssh://ops@192.0.2.7", cast(docker.APIClient, FarApi("registry:2")), {}), {})
    full = "Filesystem 1024-blocks Used Available Capacity Mounted on\noverlay 100 99 1000 99% /\n"
    monkeypatch.setattr(up, "run_once", lambda *given, **how: Once(0, full, "", 0.1))
    steps = up.up_steps(far, for_stream(io.StringIO()))
    assert [step.title for step in steps[:3]] == [up.CHECK, "Get the image registry:2", up.DISK]
    with pytest.raises(PrerequisiteError) as caught:
        steps[2].done()
    assert caught.value.what == "too little disk for a registry: 1000.0 KiB free where Docker keeps its data"
    # A plan makes no container, not even for a second.
    assert up.DISK not in [step.title for step in up.up_steps(far, None)]
