"""In what a running container is not the node that is wanted, and what is in its way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_compose_found import container_of
from trainyard.backends.compose import labels, view
from trainyard.backends.compose.change import changes
from trainyard.backends.compose.names import InTheWay
from trainyard.seams.docker.containers import Bind, Port

LABELS = {labels.IMAGE: "reg/ray@sha256:1", labels.TOKEN: "f1", labels.SIMULATED: "false"}
GIBIBYTE = 1024**3
SERVICE: dict[str, Any] = {
    "entrypoint": ["ray", "start", "--num-cpus=1", "--num-gpus=0", f"--memory={GIBIBYTE}"],
    "environment": {"PRICE": "5$$", "SECRET": "a"},
    "labels": LABELS,
    "volumes": [{"type": "volume", "source": "outputs", "target": "/outputs"}],
    "shm_size": GIBIBYTE,
    "ports": ["127.0.0.1::8265"],
}
THERE = replace(
    container_of("head", "h1"),
    labels=LABELS,
    entrypoint=("ray", "start", "--num-cpus=1", "--num-gpus=0", f"--memory={GIBIBYTE}"),
    environment={"PRICE": "5$", "SECRET": "a", "PATH": "/bin", "OLD": "x"},
    shm_size=GIBIBYTE,
    binds=(Bind("/var/lib/docker/x", "/run/secrets/trainyard-token", True),),
    ports=(Port(8265, "127.0.0.1", 33000),),
)
IMAGE = {"PATH": "/bin", "OLD": "x"}


@pytest.mark.parametrize(
    ("service", "there", "said"),
    [
        ({"entrypoint": ["ray", "start", "--num-cpus=2", "--num-gpus=0"]}, {}, "cpus: 1 now, 2 wanted"),
        ({"shm_size": 2 * GIBIBYTE}, {}, "shared memory: 1GiB now, 2GiB wanted"),
        ({"environment": {"PRICE": "6", "SECRET": "a"}}, {}, "env.PRICE is another"),
        ({"environment": {"PRICE": "5$$", "SECRET": "a", "NEW": "1"}}, {}, "env.NEW is new"),
        ({"environment": {"PRICE": "5$$"}}, {}, "env.SECRET is gone"),
        ({"volumes": [{"type": "bind", "source": "/a", "target": "/b"}]}, {}, "mount /a at /b is new"),
        ({}, {"binds": (Bind("/a", "/b", True),)}, "mount /a at /b (read only) is gone"),
        ({"ports": ["127.0.0.1:8265:8265"]}, {}, "dashboard_port: 33000 now, 8265 wanted"),
        (
            {"labels": {**LABELS, labels.IMAGE: "reg/ray@sha256:2"}},
            {},
            "image: reg/ray@sha256:1 now, reg/ray@sha256:2 wanted",
        ),
        (
            {"labels": {**LABELS, labels.TOKEN: "f2"}},
            {},
            "its token: the one that was made for it is not known here",
        ),
        ({}, {}, "something that Trainyard sets itself: it was made by another version"),
    ],
)
def test_every_difference_is_named(service: dict[str, Any], there: dict[str, Any], said: str) -> None:
    assert changes({**SERVICE, **service}, replace(THERE, **there), IMAGE)[0] == said


def test_what_is_in_the_way_says_whose_it_is() -> None:
    assert str(InTheWay("volume", "trainyard-a-outputs")) == (
        "the volume trainyard-a-outputs is in the way: Trainyard did not make it"
    )
    assert str(InTheWay("container", "trainyard-a-b-c", "a-b")) == (
        "the container trainyard-a-b-c is in the way: it belongs to the cluster a-b"
    )


def test_a_node_that_ends_again_and_again_says_how() -> None:
    looping = replace(THERE, state="restarting", exit_code=127, restarts=5)
    assert view.ends_again_and_again(looping)
    assert view.seen(looping, answers=False, last_words="exec ray failed") == (
        "restarting, exit code 127 (exec ray failed)"
    )
    assert view.seen(replace(looping, state="running"), answers=False) == (
        "not yet in Ray; Docker started it again 5 times"
    )
