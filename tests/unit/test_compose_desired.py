"""From a cluster file to what Docker Compose gets: facts in, document out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_compose_snapshot import container_of
from trainyard import render
from trainyard.backends import ray_nodes
from trainyard.backends.compose import naming
from trainyard.backends.compose.desired import Desired, Document, changes, document, token_fingerprint
from trainyard.backends.ray_nodes import Room, shared_memory
from trainyard.seams.docker.containers import Bind, Port
from trainyard.spec import ClusterSpec

GIBIBYTE = 1024**3
TWO_WORKERS: dict[str, Any] = {"workers": [{"name": "gpu", "count": 2, "cpus": 2, "memory": "2GiB", "gpus": 1}]}


def _desired(*, gpu_ids: tuple[str, ...] = ("0", "1"), simulated: bool = False, **fields: Any) -> Desired:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "compose", **fields})
    room = Room(cpus=8, memory=10 * GIBIBYTE, gpu_ids=gpu_ids)
    nodes = ray_nodes.node_plans(spec, room, simulated=simulated, machine="the Docker host")
    return Desired(spec, nodes, "reg:5000/ray-cpu@sha256:0", "me@here:/state", token_fingerprint("5ec2e7"))


def _made(desired: Desired) -> Document:
    return document(desired)


def _services(desired: Desired) -> dict[str, Any]:
    services: dict[str, Any] = render.parse(_made(desired).text)["services"]
    return services


def test_the_head_serves_the_dashboard_on_loopback_and_workers_join_it_by_name() -> None:
    services = _services(_desired(**TWO_WORKERS, head={"cpus": 1, "memory": "4GiB"}))
    command = services["head"]["entrypoint"]
    assert command[:4] == ["ray", "start", "--block", "--node-name=head"]
    assert {"--num-cpus=1", "--memory=4294967296", "--object-store-memory=1073741824"} < set(command)
    assert {"--head", "--port=6379", "--dashboard-host=0.0.0.0", "--dashboard-port=8265"} < set(command)
    assert services["gpu-1"]["entrypoint"][-1] == "--address=head:6379"
    assert (services["head"]["depends_on"], services["gpu-1"]["depends_on"]) == ([], ["head"])
    ports = {name: service["ports"] for name, service in services.items()}
    assert ports == {"head": ["127.0.0.1::8265"], "gpu-0": [], "gpu-1": []}


def test_gpus_are_dealt_out_by_index_and_hidden_from_everybody_else() -> None:
    services = _services(_desired(**TWO_WORKERS))
    devices = {name: one["deploy"] for name, one in services.items()}
    request = {"driver": "nvidia", "capabilities": ["gpu"]}
    assert devices == {
        "head": {},
        "gpu-0": {"resources": {"reservations": {"devices": [{**request, "device_ids": ["0"]}]}}},
        "gpu-1": {"resources": {"reservations": {"devices": [{**request, "device_ids": ["1"]}]}}},
    }
    assert services["head"]["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in services["gpu-0"]["environment"]


def test_the_token_is_a_file_of_the_container_and_stands_nowhere_in_the_document() -> None:
    made = _made(_desired())
    assert "5ec2e7" not in made.text
    parsed = render.parse(made.text)
    assert parsed["secrets"] == {"token": {"environment": "TRAINYARD_TOKEN"}}
    head = parsed["services"]["head"]
    assert head["secrets"] == [{"source": "token", "target": "/run/secrets/trainyard-token", "mode": "0444"}]
    assert head["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/trainyard-token"


def test_a_variable_reaches_the_node_as_it_was_written_and_none_overrides_ray_s_authentication() -> None:
    env = {"PRICE": "5$HOME", "WORDS": "a: b\n#", "NVIDIA_VISIBLE_DEVICES": "all", "RAY_DEDUP_LOGS": "0"}
    environment = _services(_desired(env=env))["head"]["environment"]
    # Compose makes one dollar sign of two.
    assert environment.items() >= {**env, "PRICE": "5$$HOME", "RAY_AUTH_MODE": "token"}.items()


def test_mounts_are_never_made_by_docker() -> None:
    desired = _desired(
        compose={"mounts": [{"source": "/srv/data", "target": "/data", "read_only": True}], "outputs": "/out"}
    )
    assert _services(desired)["head"]["volumes"] == [
        {"type": "volume", "source": "outputs", "target": "/out"},
        {
            "type": "bind",
            "source": "/srv/data",
            "target": "/data",
            "read_only": True,
            "bind": {"create_host_path": False},
        },
    ]


def test_everything_that_is_made_carries_the_cluster_s_label() -> None:
    parsed = render.parse(_made(_desired()).text)
    common = {"io.trainyard.cluster": "lab", "io.trainyard.owner": "me@here:/state"}
    assert parsed["networks"]["default"] == {"name": "trainyard-lab", "labels": common}
    assert parsed["volumes"]["outputs"] == {"name": "trainyard-lab-outputs", "labels": common}
    assert parsed["services"]["head"]["labels"].items() >= common.items()


def test_the_fingerprint_of_a_node_is_its_own() -> None:
    before = _made(_desired(**TWO_WORKERS)).fingerprints
    larger = json.loads(json.dumps(TWO_WORKERS))
    larger["workers"][0]["cpus"] = 3
    after = _made(_desired(**larger)).fingerprints
    assert before["head"] == after["head"]
    assert before["gpu-0"] != after["gpu-0"]
    assert len(set(before.values())) == 3


def test_another_image_token_or_owner_makes_another_node() -> None:
    desired = _desired()
    others = (replace(desired, image="reg@sha256:1"), replace(desired, token="1"), replace(desired, owner="you"))
    assert len({_made(each).fingerprints["head"] for each in (desired, *others)}) == 4


@pytest.mark.parametrize(
    ("shm_size", "expected"),
    [(None, (1536, 1024)), (8192, (8192, 6553)), (100, (100, 100))],
)
def test_the_object_store_is_smaller_than_the_shared_memory(shm_size: int | None, expected: tuple[int, int]) -> None:
    mebibyte = 1024**2
    size, store = shared_memory(_desired().plans[0].memory, shm_size * mebibyte if shm_size else None)
    assert (size // mebibyte, store // mebibyte) == expected


LABELS = {naming.IMAGE: "reg/ray@sha256:1", naming.TOKEN: "f1", naming.SIMULATED: "false"}
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
            {"labels": {**LABELS, naming.IMAGE: "reg/ray@sha256:2"}},
            {},
            "image: reg/ray@sha256:1 now, reg/ray@sha256:2 wanted",
        ),
        (
            {"labels": {**LABELS, naming.TOKEN: "f2"}},
            {},
            "its token: the one that was made for it is not known here",
        ),
        ({}, {}, "something that Trainyard sets itself: it was made by another version"),
    ],
)
def test_every_difference_is_named(service: dict[str, Any], there: dict[str, Any], said: str) -> None:
    assert changes({**SERVICE, **service}, replace(THERE, **there), IMAGE)[0] == said
