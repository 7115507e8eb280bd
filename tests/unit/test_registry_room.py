"""What a registry needs at its address, and what its user is warned of."""

from __future__ import annotations

from typing import cast

import docker
import pytest

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.registry import room
from trainyard.registry.site import Site
from trainyard.seams.docker_engine import Engine
from trainyard.spec.hosts import Registry

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


def test_loopback_of_another_host_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        room.check_kind(site("127.0.0.1:32000", docker_host="ssh://ops@192.0.2.7", insecure=True))
    assert str(caught.value) == (
        "127.0.0.1:32000 would be reachable on 192.0.2.7 only, which is where Docker runs\n"
        "  -> Give registry.address an address of 192.0.2.7 that this machine reaches."
    )
