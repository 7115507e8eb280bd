"""Containers as the engine describes them, and what is no error about one that is gone."""

from __future__ import annotations

from typing import Any, cast

import docker
import pytest
from docker.errors import APIError, NotFound

from trainyard.errors import OutsideError
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Bind, Port
from trainyard.seams.docker.engine import Engine

DESCRIBED = {
    "Id": "abc",
    "Name": "/trainyard-lab-head",
    "Image": "sha256:image",
    "RestartCount": 2,
    "State": {"Status": "running", "ExitCode": 0, "Error": "", "Health": {"Status": "healthy"}, "StartedAt": "now"},
    "Config": {"Image": "registry:2", "Labels": {"io.trainyard.cluster": "lab"}},
    "NetworkSettings": {
        "Ports": {"8265/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32801"}], "6379/tcp": None},
        "Networks": {"trainyard-lab": {"IPAddress": "172.18.0.2"}},
    },
    "Mounts": [
        {"Type": "volume", "Name": "outputs"},
        {"Type": "bind", "Source": "/data", "Destination": "/in", "RW": False},
    ],
}


class FakeApi:
    """An engine with one container; whatever is not prepared is refused."""

    def __init__(self, *, refusal: APIError | None = None) -> None:
        self.refusal = refusal

    def containers(self, **asked: object) -> list[dict[str, str]]:
        assert asked == {"all": True, "filters": {"label": ["io.trainyard.cluster=lab"]}}
        return [{"Id": "abc"}, {"Id": "gone-meanwhile"}]

    def inspect_container(self, name: str) -> dict[str, Any]:
        if name == "abc":
            return DESCRIBED
        raise NotFound("no such container")

    def stop(self, name: str, *, timeout: int) -> None:
        raise self.refusal or NotFound("no such container")

    def remove_container(self, name: str, **how: bool) -> None:
        raise self.refusal or NotFound("no such container")

    def logs(self, name: str, *, tail: int) -> bytes:
        raise NotFound("no such container")


def engine(api: FakeApi) -> Engine:
    return Engine("unix:///docker.sock", cast(docker.APIClient, api), {})


def test_a_container_is_read_as_the_engine_describes_it() -> None:
    (found,) = containers.labelled(engine(FakeApi()), "io.trainyard.cluster=lab")
    assert (found.name, found.image, found.image_id) == ("trainyard-lab-head", "registry:2", "sha256:image")
    assert (found.state, found.health, found.is_running, found.restarts) == ("running", "healthy", True, 2)
    assert found.ports == (Port(8265, "127.0.0.1", 32801),)
    assert found.networks == {"trainyard-lab": "172.18.0.2"}
    assert (found.volumes, found.binds) == (("outputs",), (Bind("/data", "/in", read_only=True),))


def test_what_is_gone_is_no_error() -> None:
    there = engine(FakeApi())
    assert containers.container(there, "nobody") is None
    assert containers.tail(there, "nobody") == ()
    containers.stop(there, "nobody")
    containers.remove(there, "nobody")


def test_what_docker_refuses_is_said_in_its_own_words() -> None:
    there = engine(FakeApi(refusal=APIError("409", explanation="removal is already in progress")))
    with pytest.raises(OutsideError) as caught:
        containers.remove(there, "stuck")
    assert str(caught.value) == ("Docker refused to remove the container stuck\n  at removal is already in progress")
