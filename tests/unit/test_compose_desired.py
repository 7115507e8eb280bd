"""From a cluster file to what Docker Compose gets: facts in, document out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.unit.test_single_host import GIBIBYTE, plans_of, spec_of
from trainyard.backends.compose import desired, diagnosis, naming
from trainyard.backends.shared.ray_nodes import shared_memory
from trainyard.errors import OutsideError, TrainyardError
from trainyard.seams.docker.containers import Container

TWO_WORKERS: dict[str, Any] = {
    "workers": [{"name": "gpu", "count": 2, "cpus": 2, "memory": "2GiB", "gpus": 1}]
}


def _text(*, as_root: bool = False, **fields: Any) -> str:
    spec = spec_of("compose", **fields)
    others = {"image": "reg:5000/ray-cpu@sha256:0", "token": "f1"}
    contained = [desired.in_a_container(plan, spec) for plan in plans_of(spec, "0", "1")]
    plans = [replace(plan, others={**plan.others, **others}) for plan in contained]
    log = {"driver": "json-file", "options": {"max-size": "10m"}}
    of_root = [plan.others["image"] for plan in plans] if as_root else []
    return desired.document(spec, plans, "me@here:/state", logging=log, of_root=of_root)


def _services(*, as_root: bool = False, **fields: Any) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(_text(as_root=as_root, **fields))["services"]
    return services


def test_the_dashboard_is_on_loopback_and_workers_join_the_head_by_name() -> None:
    services = _services(**TWO_WORKERS, head={"cpus": 1, "memory": "4GiB"})
    command = services["head"]["entrypoint"]
    assert command[:4] == ["ray", "start", "--block", "--node-name=head"]
    assert {"--num-cpus=1", "--memory=4294967296", "--object-store-memory=1073741824"} < set(
        command
    )
    assert {"--head", "--port=6379", "--dashboard-host=0.0.0.0", "--dashboard-port=8265"} < set(
        command
    )
    assert "--address=head:6379" in services["gpu-1"]["entrypoint"]
    assert (services["head"]["depends_on"], services["gpu-1"]["depends_on"]) == ([], ["head"])
    ports = {name: service["ports"] for name, service in services.items()}
    assert ports == {"head": ["127.0.0.1::8265", "127.0.0.1::10001"], "gpu-0": [], "gpu-1": []}


def test_each_group_has_its_resources_labels_and_parameters_of_ray() -> None:
    group = {
        "name": "gpu",
        "cpus": 2,
        "memory": "2GiB",
        "resources": {"A100": 2},
        "labels": {"zone": "a"},
        "ray_start": {
            "metrics-export-port": 8080,
            "no-redirect-output": True,
            "min-worker-port": 10000,
        },
    }

    services = _services(workers=[group])
    command = services["gpu-0"]["entrypoint"]
    assert {'--resources={"A100": 2}', "--labels=ray.io/node-group=gpu,zone=a"} < set(command)
    # The last of several counts.
    assert command[-3:] == [
        "--metrics-export-port=8080",
        "--no-redirect-output",
        "--min-worker-port=10000",
    ]

    assert not [
        word for word in services["head"]["entrypoint"] if "resources" in word or "zone" in word
    ]
    plan = json.loads(services["gpu-0"]["labels"][naming.PLAN])
    assert plan["resources"] == {"A100": 2}
    # Nodes that were made before there were such keys are as they should be.
    assert "resources" not in json.loads(services["head"]["labels"][naming.PLAN])


def test_gpus_are_dealt_out_by_index_and_hidden_from_everybody_else() -> None:
    services = _services(**TWO_WORKERS)
    devices = {name: service["deploy"] for name, service in services.items()}
    request = {"driver": "nvidia", "capabilities": ["gpu"]}
    assert devices == {
        "head": {},
        "gpu-0": {"resources": {"reservations": {"devices": [{**request, "device_ids": ["0"]}]}}},
        "gpu-1": {"resources": {"reservations": {"devices": [{**request, "device_ids": ["1"]}]}}},
    }
    assert services["head"]["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in services["gpu-0"]["environment"]


def test_a_group_may_run_another_image_and_only_that_may_need_root() -> None:
    spec = spec_of("compose", **TWO_WORKERS)
    images = {"head": "reg:5000/ray-cpu@sha256:0", "gpu": "reg:5000/isaac-ray@sha256:1"}
    contained = [desired.in_a_container(plan, spec) for plan in plans_of(spec, "0", "1")]
    plans = [
        replace(plan, others={**plan.others, "image": images[plan.group]}) for plan in contained
    ]
    text = desired.document(spec, plans, "me@here:/state", logging={}, of_root=[images["gpu"]])
    services = yaml.safe_load(text)["services"]
    found = {name: (service["image"], service["cap_drop"]) for name, service in services.items()}
    assert found == {
        "head": (images["head"], ["ALL"]),
        "gpu-0": (images["gpu"], []),
        "gpu-1": (images["gpu"], []),
    }


def test_nodes_have_no_privileges_and_only_capabilities_their_image_needs() -> None:
    def rights(**fields: Any) -> tuple[Any, Any]:
        head = _services(**fields)["head"]
        return head["security_opt"], head["cap_drop"]

    assert rights() == (["no-new-privileges:true"], ["ALL"])
    # As root it reads and writes what other users own: with capabilities.
    assert rights(as_root=True) == (["no-new-privileges:true"], [])
    assert rights(compose={"hardened": False}) == ([], [])


def test_a_node_is_held_to_its_cpus_and_memory_if_that_is_asked_for() -> None:
    head = {"cpus": 0, "memory": "1GiB"}
    services = _services(**TWO_WORKERS, head=head, compose={"limits": True, "shm_size": "1GiB"})
    assert services["head"]["deploy"] == {"resources": {"limits": {"memory": f"{2 * GIBIBYTE}b"}}}
    resources = services["gpu-0"]["deploy"]["resources"]
    assert resources["limits"] == {"memory": f"{3 * GIBIBYTE}b", "cpus": "2"}
    assert resources["reservations"]["devices"][0]["device_ids"] == ["0"]


def test_the_output_of_nodes_is_bounded_unless_the_file_configures_it() -> None:
    assert _services()["head"]["logging"]["options"] == {"max-size": "10m"}
    written = {"driver": "journald", "options": {"tag": "$lab"}}
    assert _services(compose={"logging": written})["head"]["logging"] == {
        "driver": "journald",
        "options": {"tag": "$$lab"},
    }


def test_a_setting_that_is_its_default_makes_no_node_another() -> None:
    def others(**section: Any) -> dict[str, str]:
        spec = spec_of("compose", compose=section)
        return dict(desired.in_a_container(plans_of(spec)[0], spec).others)

    usual = others()
    assert others(hardened=True, limits=False) == usual
    changed = others(hardened=False, limits=True, logging={"driver": "local"})
    assert {name: value for name, value in changed.items() if name not in usual} == {
        "hardened": "no",
        "limits": "yes",
        "logging": '{"driver":"local","options":{}}',
    }


def test_the_token_is_a_file_of_the_container_and_not_in_the_document() -> None:
    parsed = yaml.safe_load(_text())
    assert parsed["secrets"] == {"token": {"environment": "TRAINYARD_TOKEN"}}
    head = parsed["services"]["head"]
    assert head["secrets"] == [
        {"source": "token", "target": "/run/secrets/trainyard-token", "mode": "0444"}
    ]
    assert head["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/trainyard-token"


def test_a_variable_arrives_as_written_and_none_overrides_authentication() -> None:
    env = {
        "PRICE": "5$HOME",
        "WORDS": "a: b\n#",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "RAY_DEDUP_LOGS": "0",
    }
    environment = _services(env=env)["head"]["environment"]
    # Compose makes one dollar sign of two.
    assert environment.items() >= {**env, "PRICE": "5$$HOME", "RAY_AUTH_MODE": "token"}.items()


def test_mounts_are_never_made_by_docker() -> None:
    compose: dict[str, Any] = {
        "mounts": [{"source": "/srv/data", "target": "/data", "read_only": True}],
        "outputs": "/out",
    }
    assert _services(compose=compose)["head"]["volumes"] == [
        {"type": "volume", "source": "outputs", "target": "/out"},
        {"type": "bind", **compose["mounts"][0], "bind": {"create_host_path": False}},
    ]


def test_a_node_has_a_label_of_its_settings_without_values_of_variables() -> None:
    fields: dict[str, Any] = {
        "env": {"KEY": "s3cret"},
        "compose": {"mounts": [{"source": "/a", "target": "/b", "read_only": True}]},
    }
    head = _services(**fields)["head"]
    made_from = json.loads(head["labels"]["io.trainyard.made-from"])
    expected = {"cpus": 8, "image": "reg:5000/ray-cpu@sha256:0", "dashboard_port": "any"}
    assert made_from.items() >= expected.items()
    assert made_from["mount /a at /b (read only)"]
    assert "s3cret" not in str(head["labels"])


@pytest.mark.parametrize(
    ("shm_size", "expected"),
    [(None, (1536, 1024)), (8192, (8192, 6553)), (100, (100, 100))],
)
def test_the_object_store_is_smaller_than_the_shared_memory(
    shm_size: int | None, expected: tuple[int, int]
) -> None:
    mebibyte = 1024**2
    size, store = shared_memory(10 * GIBIBYTE, shm_size * mebibyte if shm_size else None)
    assert (size // mebibyte, store // mebibyte) == expected


def _container(state: str, *, restarts: int = 0) -> Container:
    return Container("1", "head", "ray", {}, state, exit_code=127, restarts=restarts)


@pytest.mark.parametrize(
    ("container", "runs", "detail"),
    [
        (_container("running"), True, ""),
        (_container("running", restarts=2), True, "Docker started it again 2 times"),
        (_container("restarting", restarts=1), True, "restarting, exit code 127"),
        (_container("restarting", restarts=5), False, "restarting, exit code 127"),
        (_container("exited"), False, "exited, exit code 127"),
        (_container("paused"), False, "paused"),
    ],
)
def test_a_container_says_how_it_is(container: Container, runs: bool, detail: str) -> None:
    assert (diagnosis.runs(container), diagnosis.describe(container)) == (runs, detail)


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (
            'could not select device driver "nvidia"',
            [
                "Docker cannot give a container GPUs there: NVIDIA's container toolkit is "
                "missing, or Docker does not "
                "use it",
                '  at could not select device driver "nvidia"',
                "  -> Install nvidia-container-toolkit (from NVIDIA's repository), then: "
                "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart "
                "docker "
                "(the restart ends running containers)",
            ],
        ),
        (
            (
                'Conflict. The container name "/trainyard-lab-head" is already in use by container '
                '"1f2e3d".'
            ),
            [
                (
                    "a container that this cluster did not make has the name of a node: "
                    "trainyard-lab-head"
                ),
                (
                    '  at Conflict. The container name "/trainyard-lab-head" is already in use by '
                    'container "1f2e3d".'
                ),
                "  -> See what it is: docker inspect trainyard-lab-head. Rename or remove it "
                "(docker rename, "
                "docker rm), or give your cluster another name (`name:` in its file).",
            ],
        ),
        (
            (
                "network trainyard-lab was found but has incorrect label com.docker.compose.network "
                'set to ""'
            ),
            [
                "another network has the name of this cluster's network: trainyard-lab",
                (
                    "  at network trainyard-lab was found but has incorrect label "
                    'com.docker.compose.network set to ""'
                ),
                "  -> See what it is: docker network inspect trainyard-lab. Remove it (docker "
                "network rm), or give "
                "your cluster another name (`name:` in its file).",
            ],
        ),
        (
            (
                "failed to bind host port for 127.0.0.1:8265:172.17.0.2:8265/tcp: address already in "
                "use"
            ),
            [
                "port 8265 of the Docker host is taken by another program or container",
                (
                    "  at failed to bind host port for 127.0.0.1:8265:172.17.0.2:8265/tcp: address "
                    "already in use"
                ),
                "  -> Leave out compose.dashboard_port: then a free port is taken.",
            ],
        ),
        (
            "no space left on device",
            ["Docker Compose could not make the containers", "  at no space left on device"],
        ),
    ],
)
def test_why_docker_refuses_is_told_with_its_fix(said: str, lines: list[str]) -> None:
    refusal = OutsideError("Docker Compose could not make the containers", where=said)
    with pytest.raises(TrainyardError) as raised, diagnosis.explained(image="mine"):
        raise refusal
    assert raised.value.lines() == lines
