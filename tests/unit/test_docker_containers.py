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
    "State": {"Status": "running", "ExitCode": 0, "Health": {"Status": "healthy"}, "StartedAt": "now"},
    "Config": {"Image": "registry:2", "Labels": {"io.trainyard.cluster": "lab"}},
    "NetworkSettings": {"Ports": {"8265/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32801"}], "6379/tcp": None}},
    "Mounts": [
        {"Type": "volume", "Name": "outputs"},
        {"Type": "bind", "Source": "/data", "Destination": "/in", "RW": False},
    ],
}


class FakeApi:
    """An engine with one container; a change of another is refused, since there is none, or for `refusal`."""

    def __init__(self, *, refusal: APIError | None = None) -> None:
        self.refusal = refusal

    def containers(self, **options: object) -> list[dict[str, str]]:
        assert options == {"all": True, "filters": {"label": ["io.trainyard.cluster=lab"]}}
        return [{"Id": "abc"}, {"Id": "gone-meanwhile"}]

    def inspect_container(self, name: str) -> dict[str, Any]:
        if name == "abc":
            return DESCRIBED
        raise NotFound("no such container")

    def refuse(self, name: str, **options: object) -> Any:
        raise self.refusal or NotFound("no such container")

    stop = remove_container = logs = refuse


def engine(api: FakeApi) -> Engine:
    return Engine("unix:///docker.sock", cast(docker.APIClient, api), {})


def test_a_container_is_read_as_the_engine_describes_it() -> None:
    (found,) = containers.labelled(engine(FakeApi()), "io.trainyard.cluster=lab")
    assert (found.name, found.image, found.image_id) == ("trainyard-lab-head", "registry:2", "sha256:image")
    assert (found.state, found.health, found.is_running, found.restarts) == ("running", "healthy", True, 2)
    assert found.ports == (Port(8265, "127.0.0.1", 32801),)
    assert found.binds == (Bind("/data", "/in", read_only=True),)


def test_what_is_gone_is_no_error() -> None:
    empty = engine(FakeApi())
    assert (containers.container(empty, "nobody"), containers.tail(empty, "nobody")) == (None, ())
    containers.stop(empty, "nobody")
    containers.remove(empty, "nobody")


def test_a_refusal_has_dockers_own_words() -> None:
    refusing = engine(FakeApi(refusal=APIError("409", explanation="removal is already in progress")))
    with pytest.raises(OutsideError) as caught:
        containers.remove(refusing, "stuck")
    assert str(caught.value) == "Docker refused to remove the container stuck\n  at removal is already in progress"
