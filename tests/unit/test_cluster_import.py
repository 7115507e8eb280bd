"""Cluster files of other tools become Trainyard's: keys with a place are kept, others named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainyard.errors import RequestError
from trainyard.importing import convert_cluster
from trainyard.importing.clusters import Clusters
from trainyard.spec.load import load_cluster

HEAD = {"image": "rayproject/ray:2.60.0", "resources": {"limits": {"cpu": 2, "memory": "4Gi"}}}
WORKER = {"image": "rayproject/ray:2.60.0", "resources": {"limits": {"cpu": "4", "memory": "8Gi"}}}

KEY = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "wandb"}}}


def ray_cluster(
    *,
    head: dict[str, Any] = HEAD,
    worker: dict[str, Any] = WORKER,
    group: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a RayCluster as KubeRay's samples have them."""
    workers = {"groupName": "small", "replicas": 2, "rayStartParams": {}, **(group or {})}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "lab"},
        "spec": {
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": {"containers": [{"name": "h", **head}]}},
            },
            "workerGroupSpecs": [
                {**workers, "template": {"spec": {"containers": [{"name": "w", **worker}]}}}
            ],
            **spec,
        },
    }


def imported(directory: Path, *documents: dict[str, Any], name: str = "theirs.yaml") -> Clusters:
    file = directory / name
    file.write_text(yaml.safe_dump_all(documents))
    return convert_cluster(file)


def only(found: Clusters) -> dict[str, Any]:
    (text,) = found.texts.values()
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def test_a_ray_cluster_becomes_a_cluster_file_that_is_valid(tmp_path: Path) -> None:
    found = imported(tmp_path, ray_cluster())
    assert only(found) == {
        "name": "lab",
        "backend": "kuberay",
        "image": "rayproject/ray:2.60.0",
        "head": {"cpus": 2, "memory": "4GiB"},
        "workers": [{"name": "small", "count": 2, "cpus": 4, "memory": "8GiB"}],
    }
    assert found.notes == ()
    (path,) = found.write(tmp_path / "clusters")
    assert load_cluster(path).spec.backend == "kuberay"


@pytest.mark.parametrize("version", ["ray.io/v1", "ray.io/v1alpha1"])
def test_groups_grow_where_the_autoscaler_is_on(version: str, tmp_path: Path) -> None:
    group = {"minReplicas": 1, "maxReplicas": 5, "replicas": 2}
    document = {**ray_cluster(group=group, enableInTreeAutoscaling=True), "apiVersion": version}
    document["spec"]["autoscalerOptions"] = {"idleTimeoutSeconds": 90}
    (workers,) = only(imported(tmp_path, document))["workers"]
    assert (workers["min"], workers["max"], workers["idle_timeout"]) == (1, 5, "90s")
    (fixed,) = only(imported(tmp_path, ray_cluster(group=group)))["workers"]
    assert fixed["count"] == 2


def test_sizes_requests_gpus_and_ray_start_have_their_words(tmp_path: Path) -> None:
    worker = {
        **WORKER,
        "resources": {
            "limits": {"cpu": "1500m", "memory": "2500M", "nvidia.com/gpu": 1},
            "requests": {"cpu": "500m", "memory": "1Gi"},
        },
    }

    start = {
        "num-gpus": "1",
        "resources": '"{\\"A100\\": 4}"',
        "metrics-export-port": "8080",
        "block": "true",
    }

    found = imported(
        tmp_path, ray_cluster(worker=worker, group={"rayStartParams": start, "groupName": "GPU_s"})
    )
    (workers,) = only(found)["workers"]

    assert workers == {
        "name": "gpu-s",
        "count": 2,
        "cpus": 2,
        "memory": "2500MB",
        "gpus": 1,
        "resources": {"A100": 4},
        "ray_start": {"metrics-export-port": 8080},
    }

    assert only(found)["kuberay"] == {
        "groups": {"gpu-s": {"requests": {"cpus": 0.5, "memory": "1GiB"}}}
    }
    assert found.notes == (
        "a group is called gpu-s here, not GPU_s",
        "1500m CPUs of gpu-s became 2: nodes have whole ones",
    )
    found.write(tmp_path / "clusters")


def test_settings_of_some_nodes_go_to_their_groups_or_are_named(tmp_path: Path) -> None:
    variables = [{"name": "ALL", "value": "1"}]
    mounts = [{"mountPath": "/data", "name": "data"}]
    head = {**HEAD, "env": [*variables, {"name": "ONE", "value": "2"}, KEY], "volumeMounts": mounts}

    worker = {
        **WORKER,
        "env": variables,
        "image": "other:1",
        "volumeMounts": mounts,
        "command": ["sleep"],
    }

    document = ray_cluster(head=head, worker=worker)
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "nfs"}}]
    pods = [document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]]
    for pod in pods:
        pod["template"]["spec"]["volumes"] = claim

    pods[1]["template"]["spec"] |= {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "value": "yes"}],
    }
    found = imported(tmp_path, document)
    content = only(found)
    assert (content["env"], content["head"]["image"]) == ({"ALL": "1"}, "rayproject/ray:2.60.0")
    assert content["workers"][0]["image"] == "other:1"

    assert content["kuberay"] == {
        "volumes": [{"target": "/data", "claim": "nfs"}],
        "groups": {
            "head": {"env": {"ONE": "2"}},
            "small": {
                "node_selector": {"pool": "gpu"},
                "tolerations": [{"operator": "Equal", "key": "gpu", "value": "yes"}],
            },
        },
    }

    assert found.notes == (
        "KEY of head: `env` takes only plain text",
        "spec.workerGroupSpecs.0.template.spec.containers.0.command.0: has no place here",
    )
    found.write(tmp_path / "clusters")


def test_a_head_without_cpus_for_tasks_keeps_those_of_ray_itself(tmp_path: Path) -> None:
    head = {**HEAD, "resources": {"limits": {"cpu": "4", "memory": "8Gi"}}}
    document = ray_cluster(head=head)
    document["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    found = imported(tmp_path, document)
    assert only(found)["head"] == {"cpus": 0, "memory": "8GiB"}
    assert only(found)["kuberay"] == {"groups": {"head": {"requests": {"cpus": 4}}}}
    assert found.notes == ()
    found.write(tmp_path / "clusters")


def test_empty_directories_are_taken_but_those_that_every_node_has(tmp_path: Path) -> None:
    sources: dict[str, Any] = {
        "/tmp/ray": {},
        "/dev/shm": {"medium": "Memory", "sizeLimit": "1Gi"},
        "/scratch": {"sizeLimit": "10Gi"},
        "/cache": {"medium": "Memory"},
    }

    mounts = [{"mountPath": path, "name": str(number)} for number, path in enumerate(sources)]
    document = ray_cluster(
        head={**HEAD, "volumeMounts": mounts}, worker={**WORKER, "volumeMounts": mounts}
    )
    for pod in (document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]):
        pod["template"]["spec"]["volumes"] = [
            {"name": str(number), "emptyDir": source}
            for number, source in enumerate(sources.values())
        ]

    found = imported(tmp_path, document)
    assert only(found)["kuberay"] == {
        "shm_size": "1GiB",
        "volumes": [
            {"target": "/scratch", "empty_dir": {"size": "10GiB"}},
            {"target": "/cache", "empty_dir": {"memory": True}},
        ],
    }

    assert found.notes == ()
    found.write(tmp_path / "clusters")


def test_a_cluster_inside_another_object_is_taken_with_the_rest_named(tmp_path: Path) -> None:
    cluster = ray_cluster()
    job = {
        **cluster,
        "kind": "RayJob",
        "spec": {"entrypoint": "python a.py", "rayClusterSpec": cluster["spec"]},
    }

    service = {
        **cluster,
        "kind": "RayService",
        "spec": {"serveConfigV2": "", "rayClusterConfig": cluster["spec"]},
    }

    listed = {"apiVersion": "v1", "kind": "List", "items": [cluster]}
    whole = only(imported(tmp_path, cluster))
    for document, notes in (
        (job, ("spec.entrypoint is the `command:` of a job.yaml: python a.py",)),
        (service, ("spec.serveConfigV2: has no place here",)),
        (listed, ()),
    ):
        found = imported(tmp_path, document)
        assert (only(found), found.notes) == (whole, notes)


def test_every_single_value_is_taken_or_named(tmp_path: Path) -> None:
    document = ray_cluster(suspend=False, gcsFaultToleranceOptions={"redisAddress": "redis:6379"})
    document["spec"]["headGroupSpec"] |= {"serviceType": "NodePort", "enableIngress": True}
    document["metadata"]["finalizers"] = ["a/b"]
    assert {note.partition(":")[0] for note in imported(tmp_path, document).notes} == {
        "metadata.finalizers.0",
        "spec.headGroupSpec.serviceType",
        "spec.headGroupSpec.enableIngress",
        "spec.suspend",
        "spec.gcsFaultToleranceOptions.redisAddress",
    }


UP = """
cluster_name: QED_lab
max_workers: 4
idle_timeout_minutes: 5
docker: {image: "rayproject/ray:2.60.0", container_name: ray_container, run_options: [--ulimit nofile=65536:65536]}
provider: {type: aws, region: us-west-2, availability_zone: "us-west-2a,us-west-2b", cache_stopped_nodes: false}
auth: {ssh_user: ec2-user, ssh_private_key: ~/.ssh/k.pem}
available_node_types:
  ray.head.default:
    resources: {CPU: 0}
    node_config:
      InstanceType: m5.xlarge
      KeyName: k
      BlockDeviceMappings: [{DeviceName: /dev/sda1, Ebs: {VolumeSize: 140, VolumeType: gp3}}]
  ray.worker.gpu:
    max_workers: 4
    resources: {CPU: 8, GPU: 1, A10G: 1}
    node_config: {InstanceType: g5.2xlarge, KeyName: k, InstanceMarketOptions: {MarketType: spot}}
head_node_type: ray.head.default
setup_commands: [pip install x]
head_start_ray_commands: [ray stop, "ray start --head --port=6379 --autoscaling-config=~/ray_bootstrap_config.yaml"]
worker_start_ray_commands: [ray stop, . env.sh, "ray start --address=$RAY_HEAD_IP:6379"]
"""


def test_a_file_of_ray_up_becomes_a_cluster_file_that_is_valid(tmp_path: Path) -> None:
    found = imported(tmp_path, yaml.safe_load(UP))
    assert only(found) == {
        "name": "qed-lab",
        "backend": "ec2",
        "image": "rayproject/ray:2.60.0",
        "head": {"cpus": 0},
        "workers": [
            {
                "name": "worker-gpu",
                "min": 0,
                "max": 4,
                "idle_timeout": "5m",
                "cpus": 8,
                "gpus": 1,
                "resources": {"A10G": 1},
            }
        ],
        "ec2": {
            "region": "us-west-2",
            "zones": ["us-west-2a", "us-west-2b"],
            "user": "ec2-user",
            "key_name": "k",
            "key_file": "~/.ssh/k.pem",
            "docker_options": ["--ulimit", "nofile=65536:65536"],
            "groups": {
                "head": {"instance_type": "m5.xlarge", "disk": "140GiB"},
                "worker-gpu": {"instance_type": "g5.2xlarge", "spot": True},
            },
            "ray": {"setup_commands": ["pip install x"]},
        },
    }

    assert found.notes == (
        "the cluster is called qed-lab here, not QED_lab",
        "node type ray.worker.gpu is group worker-gpu here",
        "worker_start_ray_commands: '. env.sh' goes into setup_commands, if it is needed",
        (
            "available_node_types.ray.head.default.node_config.BlockDeviceMappings.0.Ebs.VolumeType: "
            "has no place here"
        ),
    )

    found.write(tmp_path / "clusters")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"cluster_name": "a", "provider": {"type": "gcp"}},
            "the file is for gcp, but Trainyard makes instances only on AWS",
        ),
        (
            {"cluster_name": "a", "provider": {"type": "aws"}, "head_node": {}},
            "has no available_node_types",
        ),
        (
            {"kind": "Deployment", "apiVersion": "apps/v1"},
            "describes no cluster that can be imported",
        ),
        ({"name": "mine", "backend": "local"}, "describes no cluster that can be imported"),
        (
            {**ray_cluster(), "spec": {"headGroupSpec": {"rayStartParams": {"num-cpus": "two"}}}},
            "does not have its tool's format",
        ),
    ],
)
def test_a_file_without_an_importable_cluster_is_refused(
    document: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError) as error:
        imported(tmp_path, document)
    assert message in error.value.what


def test_images_of_head_and_workers_and_the_network_have_their_words(tmp_path: Path) -> None:
    document = yaml.safe_load(UP)
    document["docker"] = {
        "head_image": "ray:gpu",
        "worker_image": "ray:cpu",
        "container_name": "ray",
    }

    network = {"DeviceIndex": 0, "SubnetId": "subnet-00000001", "Groups": ["sg-00000001"]}
    for kind in document["available_node_types"].values():
        kind["node_config"]["NetworkInterfaces"] = [network]

    content = only(found := imported(tmp_path, document))
    assert (content["image"], content["workers"][0]["image"]) == ("ray:gpu", "ray:cpu")
    assert (content["ec2"]["subnet"], content["ec2"]["security_group"]) == (
        "subnet-00000001",
        "sg-00000001",
    )
    assert not [note for note in found.notes if "Network" in note or "image" in note]
    document["available_node_types"]["ray.worker.gpu"]["docker"] = {"worker_image": "ray:own"}
    document["available_node_types"]["ray.worker.gpu"]["node_config"]["NetworkInterfaces"] = [
        {**network, "InterfaceType": "efa"}
    ]
    content = only(found := imported(tmp_path, document))
    assert content["workers"][0]["image"] == "ray:own"
    assert [note.partition(":")[0] for note in found.notes if "Network" in note] == [
        "available_node_types.ray.worker.gpu.node_config.NetworkInterfaces.0.InterfaceType"
    ]


def test_several_documents_are_several_files_and_the_others_are_named(tmp_path: Path) -> None:
    other = {**ray_cluster(), "metadata": {"name": "second"}}
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}}
    found = imported(tmp_path, ray_cluster(), code, other)
    assert list(found.texts) == ["lab", "second"]
    assert found.notes == ("ConfigMap code is left out: it describes no cluster",)
    with pytest.raises(RequestError, match="several clusters would be called lab"):
        imported(tmp_path, ray_cluster(), ray_cluster())


def test_a_list_is_not_cut_to_its_first_entry_for_a_key_with_one_value(tmp_path: Path) -> None:
    document = yaml.safe_load(UP)
    for kind in document["available_node_types"].values():
        kind["node_config"] |= {
            "SubnetIds": ["subnet-00000001", "subnet-00000002"],
            "SecurityGroupIds": ["sg-00000001"],
        }

    market = document["available_node_types"]["ray.worker.gpu"]["node_config"][
        "InstanceMarketOptions"
    ]
    market["MarketType"] = "capacity-block"
    found = imported(tmp_path, document)
    assert only(found)["ec2"]["security_group"] == "sg-00000001"
    assert "subnet" not in only(found)["ec2"]
    named = [note.partition(":")[0] for note in found.notes]

    for kind in ("ray.head.default", "ray.worker.gpu"):
        assert f"available_node_types.{kind}.node_config.SubnetIds.1" in named

    assert (
        "available_node_types.ray.worker.gpu.node_config.InstanceMarketOptions.MarketType" in named
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("-v /data:/data", ["-v", "/data:/data"]),
        ("--label 'a b' --init", ["--label", "a b", "--init"]),
        ("--shm-size=1g", ["--shm-size=1g"]),
        ("-v $HOME/maps:/maps", None),
        ("--name `hostname`", None),
        ("-v ~/maps:/maps", None),
        ("--label 'a", None),
    ],
)
def test_options_of_docker_run_are_words_or_named(
    option: str, words: list[str] | None, tmp_path: Path
) -> None:
    document = yaml.safe_load(UP)
    document["docker"]["run_options"] = [option]
    found = imported(tmp_path, document)
    note = f"docker.run_options: {option!r} needs a shell to expand it; Trainyard uses none"
    assert only(found)["ec2"].get("docker_options") == words
    assert (note in found.notes) == (words is None)
    found.write(tmp_path / "clusters")


def test_values_set_by_kuberay_and_lossy_conversions_are_named(tmp_path: Path) -> None:
    mounts = [
        {"mountPath": "/data", "name": "data"},
        {"mountPath": "/c", "name": "c", "mountPropagation": "None"},
    ]
    start = {"object-store-memory": "100000000", "dashboard-host": "0.0.0.0"}
    document = ray_cluster(head={**HEAD, "volumeMounts": mounts}, group={"rayStartParams": start})
    (container,) = document["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"memory": "8Gi"}, "requests": {"cpu": 1}}
    head = document["spec"]["headGroupSpec"]["template"]
    head["metadata"] = {"labels": {"team": "a", "app.kubernetes.io/name": "kuberay"}}
    head["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "nfs", "readOnly": True}},
        {"name": "c", "configMap": {"name": "c"}},
    ]
    document["spec"]["autoscalerOptions"] = {"resources": {"limits": {"cpu": "500m"}}}
    found = imported(tmp_path, document)
    assert only(found)["kuberay"] == {"groups": {"head": {"labels": {"team": "a"}}}}

    assert found.notes[:3] == (
        "labels of head: app.kubernetes.io/name is set by KubeRay or Trainyard",
        "cpu of small: the request becomes the limit, too",
        (
            "object-store-memory of small (100000000): follows from memory, and shm_size of the "
            "backend here"
        ),
    )

    named = [note.partition(":")[0] for note in found.notes]
    place = "spec.headGroupSpec.template.spec"
    for path in (
        "volumes.0.persistentVolumeClaim.readOnly",
        "containers.0.volumeMounts.1.mountPropagation",
    ):
        assert f"{place}.{path}" in named

    assert "spec.autoscalerOptions.resources.limits.cpu" in named
    found.write(tmp_path / "clusters")


@pytest.mark.parametrize(
    "text",
    [
        (
            "image: {repository: rayproject/ray, tag: 2.52.0}\nhead: {resources: {}}\nworker: "
            "{replicas: 1}\n"
        ),
        "headServiceSuffix: ray-operator.svc\nhead: {groupName: head}\nworker: {replicas: 1}\n",
        "worker: {replicas: 3}\n",
        "additionalWorkerGroups: {gpu: {replicas: 1}}\n",
    ],
)
def test_values_of_the_chart_are_named_with_what_makes_a_cluster_of_them(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "values.yaml").write_text(text)
    with pytest.raises(RequestError) as caught:
        convert_cluster(tmp_path / "values.yaml")
    assert "is a values file of KubeRay's chart" in caught.value.what
    assert str(caught.value.hint).startswith("helm template NAME kuberay/ray-cluster -f ")


def with_mounts(sources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a RayCluster whose head and workers have volumes of these sources, by path."""
    mounts = [{"mountPath": path, "name": f"v{index}"} for index, path in enumerate(sources)]
    document = ray_cluster(
        head={**HEAD, "volumeMounts": mounts}, worker={**WORKER, "volumeMounts": mounts}
    )
    for pod in (document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]):
        pod["template"]["spec"]["volumes"] = [
            {"name": f"v{index}", **source} for index, source in enumerate(sources.values())
        ]
    return document


@pytest.mark.parametrize(
    ("limits", "requests", "start", "sizes", "requested", "notes"),
    [
        (
            {"cpu": 16, "memory": "32Gi"},
            {"cpu": 2},
            {"num-cpus": "4"},
            {"cpus": 4, "memory": "32GiB"},
            {"cpus": 2},
            ["cpu of small: the limit 16 becomes 4, because of num-cpus"],
        ),
        (
            {"cpu": 16, "memory": "32Gi"},
            {"cpu": 8},
            {"num-cpus": "4"},
            {"cpus": 4, "memory": "32GiB"},
            None,
            [
                "cpu of small: the limit 16 becomes 4, because of num-cpus",
                "cpu of small: the request 8 becomes 4, too",
            ],
        ),
        (
            {"cpu": 8, "memory": "32Gi", "nvidia.com/gpu": 1},
            {},
            {"num-cpus": "32", "num-gpus": "2"},
            {"cpus": 32, "memory": "32GiB", "gpus": 2},
            {"cpus": 8},
            [
                "cpu of small: the limit 8 becomes 32, because of num-cpus",
                "nvidia.com/gpu of small: the limit 1 becomes 2, because of num-gpus",
            ],
        ),
        (
            {"cpu": 8, "memory": "32Gi"},
            {"memory": "16Gi"},
            {"num-cpus": "8", "resources": '{"memory": 8589934592}'},
            {"cpus": 8, "memory": "8GiB"},
            None,
            [
                "memory of small: the limit 32GiB becomes 8GiB, because of resources",
                "memory of small: the request 16GiB becomes 8GiB, too",
            ],
        ),
        (
            {"cpu": 4},
            {"cpu": 1},
            {"num-cpus": "0"},
            {"cpus": 0},
            {"cpus": 4},
            ["small requests all of its 4 CPUs, not 1"],
        ),
    ],
)
def test_numbers_for_ray_that_replace_limits_are_named(
    limits: dict[str, Any],
    requests: dict[str, Any],
    start: dict[str, str],
    sizes: dict[str, Any],
    requested: dict[str, Any] | None,
    notes: list[str],
    tmp_path: Path,
) -> None:
    worker = {"image": HEAD["image"], "resources": {"limits": limits, "requests": requests}}
    found = imported(tmp_path, ray_cluster(worker=worker, group={"rayStartParams": start}))
    content = only(found)
    assert content["workers"] == [{"name": "small", "count": 2, **sizes}]
    groups = content.get("kuberay", {}).get("groups", {})
    assert groups.get("small", {}).get("requests") == requested
    assert list(found.notes) == notes
    found.write(tmp_path / "clusters")


def test_a_toleration_keeps_its_known_keys_and_the_rest_is_named(tmp_path: Path) -> None:
    document = ray_cluster()
    pod = document["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    known = {"key": "spot", "operator": "Exists", "effect": "NoExecute"}
    pod["tolerations"] = [{**known, "tolerationSeconds": 300}]
    found = imported(tmp_path, document)
    assert only(found)["kuberay"]["groups"]["small"]["tolerations"] == [known]
    place = "spec.workerGroupSpecs.0.template.spec.tolerations.0"
    assert found.notes == (f"{place}.tolerationSeconds: has no place here",)
    found.write(tmp_path / "clusters")


@pytest.mark.parametrize(
    ("kind", "is_taken"),
    [
        (None, True),
        ("", True),
        ("Directory", True),
        ("DirectoryOrCreate", False),
        ("Socket", False),
    ],
)
def test_a_host_path_is_taken_only_as_a_directory(
    kind: str | None, is_taken: bool, tmp_path: Path
) -> None:
    source = {"path": "/srv", "type": kind}
    if kind is None:
        del source["type"]
    found = imported(tmp_path, with_mounts({"/data": {"hostPath": source}}))
    named = "spec.headGroupSpec.template.spec.volumes.0.hostPath.type: has no place here"

    if is_taken:
        assert only(found)["kuberay"]["volumes"] == [{"target": "/data", "host_path": "/srv"}]
        assert found.notes == ()
    else:
        assert "kuberay" not in only(found)
        assert named in found.notes


def test_an_empty_directory_of_huge_pages_is_named(tmp_path: Path) -> None:
    found = imported(tmp_path, with_mounts({"/huge": {"emptyDir": {"medium": "HugePages-2Mi"}}}))
    assert "kuberay" not in only(found)
    place = "spec.headGroupSpec.template.spec.volumes.0.emptyDir.medium"
    assert f"{place}: has no place here" in found.notes


TAKEN = "is left out: every node has a volume there already"


@pytest.mark.parametrize(
    ("path", "source", "notes"),
    [
        (
            "/tmp/ray/",
            {"persistentVolumeClaim": {"claimName": "logs"}},
            [f"claim logs at /tmp/ray of {{}} {TAKEN}"],
        ),
        (
            "/dev/shm",
            {"hostPath": {"path": "/dev/shm"}},
            [f"host_path /dev/shm at /dev/shm of {{}} {TAKEN}"],
        ),
        (
            "/outputs",
            {"hostPath": {"path": "/srv"}},
            [f"host_path /srv at /outputs of {{}} {TAKEN}"],
        ),
        (
            "/tmp/ray",
            {"emptyDir": {"sizeLimit": "5Gi", "medium": "Memory"}},
            [
                "/tmp/ray of {}: the size limit 5GiB has no place here",
                "/tmp/ray of {}: is on disk here, not in memory",
            ],
        ),
        ("/dev/shm", {"emptyDir": {}}, ["/dev/shm of {}: is in memory here, not on disk"]),
        ("/outputs", {"emptyDir": {}}, []),
    ],
)
def test_volumes_where_every_node_has_its_own_are_named(
    path: str, source: dict[str, Any], notes: list[str], tmp_path: Path
) -> None:
    found = imported(tmp_path, with_mounts({path: source}))
    assert "kuberay" not in only(found)
    assert list(found.notes) == [note.format(name) for name in ("head", "small") for note in notes]
    found.write(tmp_path / "clusters")


def test_a_claim_at_outputs_of_all_nodes_becomes_the_storage(tmp_path: Path) -> None:
    document = with_mounts({"/outputs/": {"persistentVolumeClaim": {"claimName": "results"}}})
    found = imported(tmp_path, document)
    assert only(found)["kuberay"] == {"storage": {"claim": "results"}}
    assert found.notes == (
        "claim results at /outputs becomes kuberay.storage, which also keeps checkpoints",
    )
    found.write(tmp_path / "clusters")

    document["spec"]["workerGroupSpecs"][0]["template"]["spec"]["volumes"] = [
        {"name": "v0", "persistentVolumeClaim": {"claimName": "others"}}
    ]
    found = imported(tmp_path, document)
    assert "kuberay" not in only(found)
    assert found.notes == (
        f"claim results at /outputs of head {TAKEN}",
        f"claim others at /outputs of small {TAKEN}",
    )


def test_references_in_variables_are_expanded_as_kubernetes_does(tmp_path: Path) -> None:
    entries = [
        {"name": "EARLY", "value": "$(BASE)"},
        {"name": "BASE", "value": "/a"},
        {"name": "NONE", "value": ""},
        {"name": "SUB", "value": "$(BASE)/b$(NONE)"},
        {"name": "DEEP", "value": "$(SUB)/c"},
        {"name": "ESCAPED", "value": "$$(BASE) $HOME $(open"},
        KEY,
        {"name": "USED", "value": "$$$(KEY)"},
    ]
    document = ray_cluster(head={**HEAD, "env": entries}, worker={**WORKER, "env": entries[1:2]})
    found = imported(tmp_path, document)
    content = only(found)
    assert content["env"] == {"BASE": "/a"}
    assert content["kuberay"]["groups"]["head"]["env"] == {
        "NONE": "",
        "SUB": "/a/b",
        "DEEP": "/a/b/c",
        "ESCAPED": "$(BASE) $HOME $(open",
    }
    rest = "needs Kubernetes to expand it; `env` takes only plain text"
    assert found.notes == (
        f"EARLY of head: $(BASE) {rest}",
        f"USED of head: $$$(KEY) {rest}",
        "KEY of head: `env` takes only plain text",
    )
    found.write(tmp_path / "clusters")
