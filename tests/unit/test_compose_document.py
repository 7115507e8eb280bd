"""From a cluster file to what Docker Compose gets: facts in, document out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from trainyard import paths, render
from trainyard.backends import ray_nodes
from trainyard.backends.compose.document import Document, Wish, document, token_fingerprint
from trainyard.backends.ray_nodes import Room, shared_memory
from trainyard.errors import PrerequisiteError
from trainyard.spec import ClusterSpec

GIBIBYTE = 1024**3
TEMPLATE = render.template(paths.shipped("compose"), "cluster.yaml.j2")
TWO_WORKERS: dict[str, Any] = {"workers": [{"name": "gpu", "count": 2, "cpus": 2, "memory": "2GiB", "gpus": 1}]}


def _wish(*, gpu_ids: tuple[str, ...] = ("0", "1"), simulated: bool = False, **fields: Any) -> Wish:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "compose", **fields})
    room = Room(cpus=8, memory=10 * GIBIBYTE, gpu_ids=gpu_ids)
    nodes = ray_nodes.node_plans(spec, room, simulated=simulated, machine="the Docker host")
    return Wish(spec, nodes, "reg:5000/ray-cpu@sha256:0", "me@here:/state", token_fingerprint("5ec2e7"), simulated)


def _made(wish: Wish) -> Document:
    return document(wish, TEMPLATE)


def _services(wish: Wish) -> dict[str, Any]:
    services: dict[str, Any] = render.parse(_made(wish).text)["services"]
    return services


def test_the_head_serves_the_dashboard_and_workers_join_it_by_name() -> None:
    services = _services(_wish(**TWO_WORKERS, head={"cpus": 1, "memory": "4GiB"}))
    assert services["head"]["entrypoint"] == [
        "ray",
        "start",
        "--block",
        "--node-name=head",
        "--labels=ray.io/node-group=head",
        "--num-cpus=1",
        "--num-gpus=0",
        "--memory=4294967296",
        "--object-store-memory=1073741824",
        "--disable-usage-stats",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--log-color=false",
        "--head",
        "--port=6379",
        "--include-dashboard=true",
        "--dashboard-host=0.0.0.0",
        "--dashboard-port=8265",
        "--no-monitor",
    ]
    assert services["gpu-1"]["entrypoint"][-1] == "--address=head:6379"
    assert services["gpu-1"]["depends_on"] == ["head"]
    assert services["head"]["depends_on"] == []


def test_only_the_head_publishes_a_port_and_only_on_loopback() -> None:
    services = _services(_wish(**TWO_WORKERS))
    assert {name: one["ports"] for name, one in services.items()} == {
        "head": ["127.0.0.1::8265"],
        "gpu-0": [],
        "gpu-1": [],
    }


def test_the_dashboard_s_port_can_be_chosen() -> None:
    assert _services(_wish(compose={"dashboard_port": 8265}))["head"]["ports"] == ["127.0.0.1:8265:8265"]


def test_gpus_are_dealt_out_by_index_and_hidden_from_everybody_else() -> None:
    services = _services(_wish(**TWO_WORKERS))
    devices = {name: one["deploy"] for name, one in services.items()}
    request = {"driver": "nvidia", "capabilities": ["gpu"]}
    assert devices == {
        "head": {},
        "gpu-0": {"resources": {"reservations": {"devices": [{**request, "device_ids": ["0"]}]}}},
        "gpu-1": {"resources": {"reservations": {"devices": [{**request, "device_ids": ["1"]}]}}},
    }
    assert services["head"]["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in services["gpu-0"]["environment"]


def test_simulated_gpus_are_only_numbers() -> None:
    worker = _services(_wish(**TWO_WORKERS, gpu_ids=(), simulated=True))["gpu-0"]
    assert "--num-gpus=1" in worker["entrypoint"]
    assert worker["deploy"] == {}
    assert worker["labels"]["io.trainyard.simulated-gpus"] == "true"


def test_more_gpus_than_the_docker_host_has_are_refused() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        _wish(**TWO_WORKERS, gpu_ids=("0",))
    assert caught.value.lines() == [
        "the cluster file wants 2 GPUs, the Docker host has 1",
        "  at gpu-0: 1, gpu-1: 1",
        "  -> Want fewer, or write `compose: {simulated_gpus: true}` to try the layout without them.",
    ]


def test_the_token_is_a_file_of_the_container_and_stands_nowhere_in_the_document() -> None:
    made = _made(_wish())
    assert "5ec2e7" not in made.text
    parsed = render.parse(made.text)
    assert parsed["secrets"] == {"token": {"environment": "TRAINYARD_TOKEN"}}
    head = parsed["services"]["head"]
    assert head["secrets"] == [{"source": "token", "target": "/run/secrets/trainyard-token", "mode": "0444"}]
    assert head["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/trainyard-token"


def test_without_auth_there_is_no_secret() -> None:
    parsed = render.parse(_made(replace(_wish(auth="none"), token=None)).text)
    assert parsed["secrets"] == {}
    assert parsed["services"]["head"]["environment"]["RAY_AUTH_MODE"] == "disabled"


def test_a_variable_reaches_the_node_as_it_was_written() -> None:
    environment = _services(_wish(env={"PRICE": "5$HOME", "WORDS": "a: b\n#"}))["head"]["environment"]
    # Compose makes one dollar sign of two.
    assert (environment["PRICE"], environment["WORDS"]) == ("5$$HOME", "a: b\n#")


def test_no_variable_of_the_file_overrides_ray_s_authentication() -> None:
    wish = _wish(env={"NVIDIA_VISIBLE_DEVICES": "all", "RAY_DEDUP_LOGS": "0"})
    environment = _services(wish)["head"]["environment"]
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_DEDUP_LOGS"] == "0"


def test_mounts_are_never_made_by_docker() -> None:
    wish = _wish(compose={"mounts": [{"source": "/srv/data", "target": "/data", "read_only": True}], "outputs": "/out"})
    assert _services(wish)["head"]["volumes"] == [
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
    parsed = render.parse(_made(_wish()).text)
    common = {"io.trainyard.cluster": "lab", "io.trainyard.owner": "me@here:/state"}
    assert parsed["networks"]["default"] == {"name": "trainyard-lab", "labels": common}
    assert parsed["volumes"]["outputs"] == {"name": "trainyard-lab-outputs", "labels": common}
    assert parsed["services"]["head"]["labels"].items() >= common.items()


def test_the_fingerprint_of_a_node_is_its_own() -> None:
    before = _made(_wish(**TWO_WORKERS)).fingerprints
    larger = json.loads(json.dumps(TWO_WORKERS))
    larger["workers"][0]["cpus"] = 3
    after = _made(_wish(**larger)).fingerprints
    assert before["head"] == after["head"]
    assert before["gpu-0"] != after["gpu-0"]
    assert len(set(before.values())) == 3


@pytest.mark.parametrize(
    "changed",
    [{"image": "reg:5000/ray-cpu@sha256:1"}, {"token": token_fingerprint("another")}, {"owner": "you"}],
)
def test_another_image_or_token_makes_another_node(changed: dict[str, str]) -> None:
    wish = _wish()
    assert _made(wish).fingerprints != _made(replace(wish, **changed)).fingerprints  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shm_size", "expected"),
    [(None, (1536, 1024)), (8192, (8192, 6553)), (100, (100, 100))],
)
def test_the_object_store_is_smaller_than_the_shared_memory(shm_size: int | None, expected: tuple[int, int]) -> None:
    mebibyte = 1024**2
    size, store = shared_memory(_wish().plans[0].memory, shm_size * mebibyte if shm_size else None)
    assert (size // mebibyte, store // mebibyte) == expected
