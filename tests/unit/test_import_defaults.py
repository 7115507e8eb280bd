"""Settings that files of `ray up` and KubeRay leave to defaults, or give to `ray start`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_cluster_import import imported, only, ray_cluster
from trainyard.backends.shared.ray_start import labels_of
from trainyard.errors import RequestError
from trainyard.importing import try_out

AUTOSCALED: dict[str, Any] = {"enableInTreeAutoscaling": True}


def up(
    *, head: dict[str, Any] | None = None, worker: dict[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    """Return a file of `ray up` with a head and one other type of nodes."""
    types: dict[str, Any] = {"head": {"node_config": {"InstanceType": "m5.large"}, **(head or {})}}
    if worker is not None:
        types["cpu"] = {"node_config": {"InstanceType": "m5.xlarge"}, **worker}
    provider = {"type": "aws", "region": "us-west-2", "cache_stopped_nodes": False}
    document = {
        "cluster_name": "lab",
        "provider": provider,
        "head_node_type": "head",
        "available_node_types": types,
    }
    return {**document, **sections}


@pytest.mark.parametrize(
    ("group", "spec", "size", "note"),
    [
        ({"replicas": None, "minReplicas": 3}, {}, {"count": 3}, None),
        (
            {"replicas": 1, "minReplicas": 3},
            {},
            {"count": 3},
            "has 3, not 1, because of minReplicas or maxReplicas",
        ),
        (
            {"replicas": 9, "maxReplicas": 4},
            {},
            {"count": 4},
            "has 4, not 9, because of minReplicas or maxReplicas",
        ),
        ({"suspend": True}, {}, {"count": 0}, "suspended, so it has no nodes"),
        (
            {"replicas": 3},
            AUTOSCALED,
            {"min": 0, "max": 3},
            "grows without a limit there; `max: 3` is written",
        ),
        (
            {"replicas": 3, "numOfHosts": 2},
            AUTOSCALED,
            {"min": 0, "max": 6},
            "grows without a limit there; `max: 6` is written",
        ),
        (
            {"maxReplicas": 2, "idleTimeoutSeconds": 0},
            AUTOSCALED,
            {"min": 0, "max": 2},
            "idleTimeoutSeconds: 0 has no place here",
        ),
        ({"minReplicas": 2, "maxReplicas": 2}, AUTOSCALED, {"count": 2}, None),
        (
            {"replicas": 4, "minReplicas": 0, "maxReplicas": 10, "numOfHosts": 2},
            AUTOSCALED,
            {"min": 0, "max": 20},
            "group small begins with 0 nodes, not 8: the autoscaler adds those that tasks need",
        ),
        (
            {"replicas": 1, "minReplicas": 1, "maxReplicas": 3},
            AUTOSCALED,
            {"min": 1, "max": 3},
            None,
        ),
    ],
)
def test_a_group_of_kuberay_has_as_many_nodes_as_there(
    group: dict[str, Any],
    spec: dict[str, Any],
    size: dict[str, int],
    note: str | None,
    tmp_path: Path,
) -> None:
    found = imported(tmp_path, ray_cluster(group=group, **spec))
    (workers,) = only(found)["workers"]
    assert {key: workers[key] for key in ("count", "min", "max") if key in workers} == size
    if note is None:
        assert found.notes == ()
    else:
        assert any(note in text for text in found.notes)


def test_fields_of_a_kuberay_group_override_its_ray_start_parameters(tmp_path: Path) -> None:
    group = {
        "rayStartParams": {"num-cpus": "1", "labels": "market=spot"},
        "labels": {"zone": "a"},
        "resources": {"CPU": "3", "GPU": "2", "memory": "4Gi", "NPU": "1", "half": "0.5"},
        "idleTimeoutSeconds": 30,
        "maxReplicas": 5,
    }

    found = imported(
        tmp_path,
        ray_cluster(group=group, **AUTOSCALED, autoscalerOptions={"idleTimeoutSeconds": 90}),
    )
    (workers,) = only(found)["workers"]

    assert workers == {
        "name": "small",
        "min": 0,
        "max": 5,
        "idle_timeout": "30s",
        "cpus": 3,
        "gpus": 2,
        "memory": "4GiB",
        "labels": {"zone": "a"},
        "resources": {"NPU": 1},
    }

    assert found.notes == (
        "group small begins with 0 nodes, not 2: the autoscaler adds those that tasks need",
        "resources of small: half is 0.5, and nodes have whole numbers",
        "cpu of small: the limit 4 becomes 3, because of resources",
        "nvidia.com/gpu of small: the limit 0 becomes 2, because of resources",
        "memory of small: the limit 8GiB becomes 4GiB, because of resources",
    )


def test_each_parameter_of_ray_start_is_taken_or_named(tmp_path: Path) -> None:
    start = {
        "node-ip-address": "$MY_POD_IP",
        "num-cpus": "$CPUS",
        "temp-dir": "/mnt/ray",
        "port": "6379",
        "dashboard-port": "8266",
        "block": "true",
        "metrics-export-port": "8080",
    }

    found = imported(tmp_path, ray_cluster(group={"rayStartParams": start}))
    assert only(found)["workers"][0]["ray_start"] == {"metrics-export-port": 8080}
    assert set(found.notes) == {
        "node-ip-address of small: $MY_POD_IP needs a shell to expand it; Trainyard uses none",
        "num-cpus of small: $CPUS needs a shell to expand it; Trainyard uses none",
        "temp-dir of small (/mnt/ray): follows from the backend here",
        "dashboard-port of small (8266): follows from the backend here",
    }


def test_a_job_of_kuberay_says_what_its_job_file_has_words_for(tmp_path: Path) -> None:
    cluster = ray_cluster()
    own = {
        "entrypoint": "python a.py",
        "runtimeEnvYAML": "pip:\n  - six\n",
        "entrypointNumCpus": 2,
        "suspend": False,
    }

    found = imported(
        tmp_path, {**cluster, "kind": "RayJob", "spec": {"rayClusterSpec": cluster["spec"], **own}}
    )

    assert found.notes == (
        "spec.entrypoint is the `command:` of a job.yaml: python a.py",
        "spec.runtimeEnvYAML is the `runtime_env:` of a job.yaml: pip: - six",
        "spec.entrypointNumCpus is the `resources.cpus:` of a job.yaml: 2",
        "spec.suspend: has no place here",
    )


def test_only_a_vendors_resource_may_be_a_gpu(tmp_path: Path) -> None:
    limits = {"cpu": 4, "memory": "8Gi", "ephemeral-storage": "50Gi", "amd.com/gpu": 1}
    found = imported(tmp_path, ray_cluster(worker={"image": "x", "resources": {"limits": limits}}))
    assert found.notes == (
        "amd.com/gpu of small: to use GPUs other than nvidia.com/gpu, set kuberay.gpu_resource",
        "ephemeral-storage of small: has no place here",
    )


@pytest.mark.parametrize(
    ("types", "most", "groups"),
    [
        # Ray takes 2 where neither the type nor the file says a number, and 0 for the head's type.
        ({"worker": {}}, None, [("cpu", {"min": 0, "max": 2})]),
        ({"worker": {"max_workers": 9}}, 4, [("cpu", {"min": 0, "max": 4})]),
        (
            {"head": {"min_workers": 1, "max_workers": 3}},
            3,
            [("head-workers", {"min": 1, "max": 3})],
        ),
        ({"head": {"max_workers": 999_999}, "worker": {}}, 0, [("cpu", {"count": 0})]),
    ],
)
def test_groups_of_ray_up_have_as_many_nodes_as_there(
    types: dict[str, Any],
    most: int | None,
    groups: list[tuple[str, dict[str, int]]],
    tmp_path: Path,
) -> None:
    found = imported(tmp_path, up(**types, max_workers=most))
    workers = only(found)["workers"]
    sizes = [
        {key: group[key] for key in ("count", "min", "max") if key in group} for group in workers
    ]
    assert [(group["name"], size) for group, size in zip(workers, sizes, strict=True)] == groups
    found.write(tmp_path / "clusters")


def test_the_type_of_the_head_is_rays_own_where_none_is_named(tmp_path: Path) -> None:
    document = up(worker={})
    del document["head_node_type"]
    with pytest.raises(
        RequestError,
        match=r"^the file has no head_node_type, one of available_node_types: cpu, head",
    ):
        imported(tmp_path, document)
    document["available_node_types"]["ray.head.default"] = document["available_node_types"].pop(
        "head"
    )
    assert [group["name"] for group in only(imported(tmp_path, document))["workers"]] == ["cpu"]


def test_a_file_without_types_is_not_called_old(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        imported(
            tmp_path, {"cluster_name": "lab", "provider": {"type": "aws", "region": "us-west-2"}}
        )
    assert "Without them, Ray chooses node types itself" in (error.value.hint or "")


def test_flags_of_ray_start_in_commands_are_taken_or_named(tmp_path: Path) -> None:
    line = (
        "ulimit -n 65536; ray start {} --object-manager-port=8076 --metrics-export-port 8080 "
        "--temp-dir=/mnt"
    )
    head = line.format("--head --autoscaling-config=~/ray_bootstrap_config.yaml")
    worker = line.format("--address=$RAY_HEAD_IP:6379 --resources='{\"rollout\": 1}'")
    commands: dict[str, Any] = {
        "head_start_ray_commands": ["ray stop", f"{head} | tee log"],
        "worker_start_ray_commands": ["ray stop", worker],
    }
    found = imported(tmp_path, up(worker={"max_workers": 1}, max_workers=1, **commands))
    (workers,) = only(found)["workers"]
    assert workers["ray_start"] == {"metrics-export-port": 8080}
    assert workers["resources"] == {"rollout": 1}

    assert found.notes == (
        (
            f"head_start_ray_commands: {f'{head} | tee log'!r} is not read: Trainyard starts Ray "
            "itself; its parameters go into ray_start, other commands into setup_commands"
        ),
        "temp-dir of workers (/mnt): follows from the backend here",
    )

    found.write(tmp_path / "clusters")


def test_a_dry_import_refuses_what_the_import_would(tmp_path: Path) -> None:
    document = up(head={"resources": {"CPU": 2, "object_store_memory": 10**9, "half": 0.5}})
    found = imported(tmp_path, document)
    assert only(found)["head"] == {"cpus": 2}

    assert found.notes[-2:] == (
        (
            "object_store_memory of head (1000000000): follows from memory, and shm_size of the "
            "backend here"
        ),
        "resources of head: half is 0.5, and nodes have whole numbers",
    )

    try_out(found)

    wrong = imported(tmp_path, up(head={"resources": {"bad name!": 1}}))
    with pytest.raises(RequestError) as error:
        try_out(wrong)

    assert error.value.problems[0].where.startswith("lab.yaml:")


@pytest.mark.parametrize(
    ("line", "head", "notes"),
    [
        (
            "ray start --head --num-cpus=0 --num-gpus 2 --memory=1073741824 "
            "--resources='{\"big\": 3}' --labels=team=a,tier=b",
            {
                "cpus": 0,
                "gpus": 2,
                "memory": "1GiB",
                "resources": {"big": 3},
                "labels": {"team": "a", "tier": "b"},
            },
            (),
        ),
        (
            "export X=1; ulimit -c unlimited; Y=2 ray start --head --num-cpus=0",
            {"cpus": 0},
            (
                "head_start_ray_commands: 'export X=1' goes into env, if it is needed",
                "head_start_ray_commands: 'ulimit -c unlimited' goes into setup_commands, if it is "
                "needed",
                "head_start_ray_commands: 'export Y=2' goes into env, if it is needed",
            ),
        ),
        (
            "ray start --head --num-cpus=$(nproc)",
            None,
            (
                "head_start_ray_commands: 'ray start --head --num-cpus=$(nproc)' is not read: "
                "Trainyard starts Ray itself; its parameters go into ray_start, other commands "
                "into setup_commands",
            ),
        ),
        (
            "/opt/bin/ray start --head",
            None,
            (
                "head_start_ray_commands: '/opt/bin/ray start --head' is not read: Trainyard "
                "starts Ray itself; its parameters go into ray_start, other commands into "
                "setup_commands",
            ),
        ),
    ],
)
def test_a_line_that_starts_ray_is_read_apart_from_other_commands(
    line: str, head: dict[str, Any] | None, notes: tuple[str, ...], tmp_path: Path
) -> None:
    found = imported(tmp_path, up(head_start_ray_commands=[line]))
    assert (only(found).get("head"), found.notes[1:]) == (head, notes)
    found.write(tmp_path / "clusters")


def test_resources_of_a_node_type_win_over_those_of_its_start_command(tmp_path: Path) -> None:
    command = 'ray start --num-cpus=1 --resources=\'{"a": 1, "b": 1}\''
    document = up(
        worker={"resources": {"CPU": 4, "a": 2}}, worker_start_ray_commands=[command], max_workers=1
    )
    found = imported(tmp_path, document)
    (workers,) = only(found)["workers"]
    assert (workers["cpus"], workers["resources"]) == (4, {"a": 2, "b": 1})
    assert found.notes == (
        "cpus of cpu is 4, not 1: as in Ray, the node type decides",
        "a in resources of cpu is 2, not 1: as in Ray, the node type decides",
    )


@pytest.mark.parametrize(
    ("worker", "has_note"),
    [
        ({}, True),
        ({"resources": {"GPU": 0}}, False),
        ({"resources": {"GPU": 1}}, False),
        ({"node_config": {"InstanceType": "m5.large"}}, False),
    ],
)
def test_a_type_with_gpus_that_the_file_does_not_mention_is_named(
    worker: dict[str, Any], has_note: bool, tmp_path: Path
) -> None:
    worker = {"node_config": {"InstanceType": "p2.xlarge"}, **worker}
    found = imported(tmp_path, up(worker=worker, max_workers=1))
    note = (
        "cpu: p2.xlarge may have GPUs, which Ray found by itself; here `gpus` says how many Ray "
        "gets, by default none"
    )
    assert (note in found.notes) == has_note


def test_gpus_of_a_start_command_need_no_note(tmp_path: Path) -> None:
    head = {"node_config": {"InstanceType": "p2.xlarge"}}
    document = up(head=head, head_start_ray_commands=["ray start --head --num-gpus=1"])
    found = imported(tmp_path, document)
    assert only(found)["head"] == {"gpus": 1}
    assert not [note for note in found.notes if "GPUs" in note]


def test_zones_are_left_out_where_all_types_have_one_subnet(tmp_path: Path) -> None:
    config = {"InstanceType": "m5.large", "SubnetIds": ["subnet-00000001"]}
    document = up(head={"node_config": config})
    document["provider"]["availability_zone"] = "us-west-2a,us-west-2b"
    found = imported(tmp_path, document)
    assert only(found)["ec2"]["subnet"] == "subnet-00000001"
    assert "zones" not in only(found)["ec2"]
    assert "provider.availability_zone: follows from the subnet here" in found.notes
    found.write(tmp_path / "clusters")


@pytest.mark.parametrize(
    ("written", "ami", "note"),
    [
        ("resolve:ssm:/aws/service/some/ami-id", "/aws/service/some/ami-id", None),
        (
            "latest_dlami",
            None,
            "ImageId of head is latest_dlami: without `ami`, Trainyard's default",
        ),
    ],
)
def test_an_ami_that_has_no_id_is_one_here(
    written: str, ami: str | None, note: str | None, tmp_path: Path
) -> None:
    config = {"InstanceType": "m5.large", "ImageId": written}
    found = imported(tmp_path, up(head={"node_config": config}))
    assert only(found)["ec2"]["groups"]["head"].get("ami") == ami
    assert [text for text in found.notes if "ImageId" in text] == ([note] if note else [])
    found.write(tmp_path / "clusters")


def test_a_resource_of_which_there_is_none_is_named(tmp_path: Path) -> None:
    found = imported(tmp_path, up(head={"resources": {"CPU": 0, "custom": 0}}))
    assert only(found)["head"] == {"cpus": 0}
    assert "resources of head: custom is 0, which is the same as none" in found.notes
    found.write(tmp_path / "clusters")


def test_workers_of_the_heads_type_get_a_name_that_is_free(tmp_path: Path) -> None:
    document = up(head={"max_workers": 2}, max_workers=3)
    types = document["available_node_types"]
    types["node"] = types.pop("head")
    types["node-workers"] = {"node_config": {"InstanceType": "m5.xlarge"}, "max_workers": 1}
    types["Node.workers"] = types["node-workers"]
    found = imported(tmp_path, {**document, "head_node_type": "node"})
    assert [group["name"] for group in only(found)["workers"]] == [
        "node-workers-2",
        "node-workers",
        "node-workers-3",
    ]
    assert "node type node has workers, too: they are group node-workers-2 here" in found.notes
    found.write(tmp_path / "clusters")


@pytest.mark.parametrize(
    ("devices", "disk", "left"),
    [
        (["/dev/sda1"], "100GiB", []),
        (["/dev/xvda", "/dev/sdf"], "100GiB", ["1"]),
        (["/dev/sdf", "/dev/sda1"], "200GiB", ["0"]),
        (["/dev/sdf"], None, ["0"]),
    ],
)
def test_only_the_root_device_is_the_disk_of_an_instance(
    devices: list[str], disk: str | None, left: list[str], tmp_path: Path
) -> None:
    mappings = []
    for number, device in enumerate(devices, 1):
        mappings.append({"DeviceName": device, "Ebs": {"VolumeSize": 100 * number}})
    config = {"InstanceType": "m5.large", "BlockDeviceMappings": mappings}
    found = imported(tmp_path, up(head={"node_config": config}))
    assert only(found)["ec2"]["groups"]["head"].get("disk") == disk
    place = "available_node_types.head.node_config.BlockDeviceMappings"
    expected = [f"{place}.{index}.Ebs.VolumeSize: has no place here" for index in left]
    assert [note for note in found.notes if "VolumeSize" in note] == expected


def test_an_empty_list_of_commands_of_a_node_type_is_kept(tmp_path: Path) -> None:
    # In Ray it replaces the list of the document.
    document = up(worker={"initialization_commands": []}, initialization_commands=["a"])
    assert only(imported(tmp_path, document))["ec2"]["ray"] == {
        "initialization_commands": ["a"],
        "available_node_types": {"cpu": {"initialization_commands": []}},
    }


@pytest.mark.parametrize("text", ["a=b,c=d", '{"a": "b", "c": "d"}'])
def test_labels_of_ray_start_are_pairs_or_json(text: str) -> None:
    assert labels_of(text) == {"a": "b", "c": "d"}
