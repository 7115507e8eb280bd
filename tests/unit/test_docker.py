"""A Docker engine's answers about containers and images, and the streams that it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import docker
import pytest
import requests
from docker.errors import APIError, NotFound
from urllib3.exceptions import ReadTimeoutError

from trainyard.errors import OutsideError
from trainyard.seams.docker import containers, transfer
from trainyard.seams.docker.containers import Port
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import facts, split_tag
from trainyard.seams.docker.transfer import LayerTally
from trainyard.seams.registry.errors import GoneError

DESCRIBED = {
    "Id": "abc",
    "Name": "/trainyard-lab-head",
    "Image": "sha256:image",
    "RestartCount": 2,
    "State": {
        "Status": "running",
        "ExitCode": 0,
        "Health": {"Status": "healthy"},
        "StartedAt": "now",
    },
    "Config": {"Image": "registry:2", "Labels": {"io.trainyard.cluster": "lab"}},
    "NetworkSettings": {
        "Ports": {"8265/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32801"}], "6379/tcp": None}
    },
}


class FakeApi:
    """An engine with one container; it refuses changes of any other, or all with `refusal`."""

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
    (container,) = containers.labelled(engine(FakeApi()), "io.trainyard.cluster=lab")
    assert (container.name, container.image) == ("trainyard-lab-head", "registry:2")
    assert (container.state, container.health, container.restarts) == ("running", "healthy", 2)
    assert container.ports == (Port(8265, "127.0.0.1", 32801),)


def test_a_missing_container_is_no_error() -> None:
    empty = engine(FakeApi())
    assert (containers.container(empty, "nobody"), containers.tail(empty, "nobody")) == (None, ())
    containers.stop(empty, "nobody")
    containers.remove(empty, "nobody")


def test_a_refusal_has_dockers_own_words() -> None:
    refusing = engine(
        FakeApi(refusal=APIError("409", explanation="removal is already in progress"))
    )
    with pytest.raises(OutsideError) as caught:
        containers.remove(refusing, "stuck")
    assert (
        str(caught.value)
        == "Docker refused to remove the container stuck\n  at removal is already in progress"
    )


def test_an_engines_answer_as_facts() -> None:
    answer = {
        "Id": "sha256:1",
        "RepoDigests": ["registry:5000/mine@sha256:2"],
        "Os": "linux",
        "Architecture": "arm64",
        "Variant": "v8",
        "RootFS": {"Layers": ["sha256:3"]},
        "Config": {"Env": ["A=b=c", "EMPTY="], "Labels": None, "Entrypoint": ["/x"]},
    }

    image = facts(answer)
    assert (image.env, image.platform, image.layers) == (
        {"A": "b=c", "EMPTY": ""},
        "linux/arm64/v8",
        ("sha256:3",),
    )

    assert image.digest_in("registry:5000/mine") == "sha256:2"
    assert (image.tags, image.labels, image.user, image.size) == ((), {}, "", 0)


def test_a_port_is_no_tag() -> None:
    assert split_tag("registry:5000/debian:12") == ("registry:5000/debian", "12")
    assert split_tag("registry:5000/team/debian") == ("registry:5000/team/debian", "latest")
    assert split_tag("registry:5000/debian@sha256:ab") == ("registry:5000/debian", "sha256:ab")


def test_layers_and_bytes_of_a_pull() -> None:
    said: list[str] = []
    tally = LayerTally(said.append)
    tally.count({"status": "Pulling from library/debian", "id": "12"})
    assert said == []

    for layer in "abc":
        tally.count({"status": "Pulling fs layer", "id": layer})

    tally.count({"status": "Already exists", "id": "a"})
    assert said[-1] == "1 of 3 layers"
    tally.count(
        {
            "status": "Downloading",
            "id": "b",
            "progressDetail": {"current": 30_000_000, "total": 90_000_000},
        }
    )

    tally.count({"status": "Mounted from mine", "id": "b"})
    assert said[-2:] == ["1 of 3 layers, 30 of 90 MB", "2 of 3 layers, 90 of 90 MB"]


def test_layers_and_bytes_of_a_push_have_no_total_that_would_grow() -> None:
    said: list[str] = []
    tally = LayerTally(said.append)
    for layer in "ab":
        tally.count({"status": "Preparing", "id": layer})

    tally.count(
        {
            "status": "Pushing",
            "id": "a",
            "progressDetail": {"current": 30_000_000, "total": 90_000_000},
        }
    )

    tally.count({"status": "Pushed", "id": "a"})
    assert said == [
        "0 of 2 layers, 30 MB before compression",
        "1 of 2 layers, 90 MB before compression",
    ]


class BreakingApi:
    """An engine that answers a push or pull with one line, then breaks."""

    base_url = "http+docker://localhost"
    api_version = "1.41"
    status_code = 200

    def __init__(self, broken: Exception) -> None:
        self.broken = broken

    def post(self, url: str, **how: Any) -> BreakingApi:
        return self

    def __enter__(self) -> BreakingApi:
        return self

    def __exit__(self, *ended: object) -> None:
        pass

    def iter_lines(self, chunk_size: int | None) -> Iterator[bytes]:
        yield b'{"status":"Preparing","id":"a"}'
        raise self.broken


# A silent engine, as requests raises it: before the answer, and in the middle of one.
SILENCE = ReadTimeoutError(cast("Any", None), "/push", "Read timed out.")


@pytest.mark.parametrize("transferred", [transfer.push, transfer.pull])
@pytest.mark.parametrize(
    "error", [requests.exceptions.ReadTimeout(SILENCE), requests.ConnectionError(SILENCE)]
)
def test_a_push_or_pull_whose_connection_breaks_is_ended(
    error: Exception, transferred: Callable[..., None]
) -> None:
    with pytest.raises(GoneError):
        transferred(
            Engine("unix:///x.sock", cast("Any", BreakingApi(error)), {}),
            "reg:5000/mine:1",
            login=None,
        )
