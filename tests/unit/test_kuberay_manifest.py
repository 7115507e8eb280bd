"""From a cluster file to what Kubernetes gets: facts in, objects out."""

from __future__ import annotations

from typing import Any

from ray.autoscaler._private.kuberay import autoscaling_config

from tests.kuberay_files import EVERYTHING, GPUS, IMAGE, RESTRICTED, SMALL, made, spec_of
from trainyard.backends.kuberay.manifest import documents
from trainyard.backends.kuberay.manifest.pod import Inputs


def spec(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(**fields).ray_cluster["spec"]
    return found


def head(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = spec(**fields)["headGroupSpec"]["template"]["spec"]
    return found


def worker(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = spec(**fields)["workerGroupSpecs"][0]["template"]["spec"]
    return found


def env(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["containers"][0]["env"]}


def test_everything_that_we_make_carries_the_cluster_s_label() -> None:
    found = made(**EVERYTHING)
    ours = {"io.trainyard/cluster": "lab", "app.kubernetes.io/managed-by": "trainyard"}
    assert found.ray_cluster["metadata"] == {
        "name": "lab",
        "namespace": "team",
        "labels": {"team": "robots", **ours},
        "annotations": {
            "io.trainyard/image": IMAGE,
            "io.trainyard/simulated-gpus": "false",
            "io.trainyard/owner": "",
        },
    }

    templates = [
        found.ray_cluster["spec"]["headGroupSpec"],
        *found.ray_cluster["spec"]["workerGroupSpecs"],
    ]
    assert [one["template"]["metadata"] for one in templates] == [
        {"labels": {**ours, "team": "robots"}, "annotations": {"example.com/owner": "me"}}
    ] * 4
    assert found.claim is not None
    assert found.claim["metadata"] == {
        "name": "lab-outputs",
        "namespace": "team",
        "labels": ours,
        "annotations": {"io.trainyard/owner": ""},
    }
    assert found.namespace["metadata"] == {
        "name": "team",
        "labels": {"app.kubernetes.io/managed-by": "trainyard"},
    }


def test_ray_is_told_what_the_file_declares() -> None:
    groups = spec(**EVERYTHING)
    gpu = groups["workerGroupSpecs"][0]
    first = groups["headGroupSpec"]
    declared = ("node-name", "num-cpus", "num-gpus", "memory")
    assert [[group["rayStartParams"][key] for key in declared] for group in (first, gpu)] == [
        ["head", "0", "0", "4294967296"],
        ["gpu-${HOSTNAME##*-}", "4", "2", "8589934592"],
    ]
    assert [group["labels"]["ray.io/node-group"] for group in (first, gpu)] == ["head", "gpu"]


def test_requests_are_the_limits_unless_the_file_says_less() -> None:
    assert worker(**SMALL, kuberay={"requests": {"cpus": 8, "memory": "64GiB"}})["containers"][0][
        "resources"
    ] == {
        "limits": {"cpu": "1", "memory": "2Gi"},
        "requests": {"cpu": "1", "memory": "2Gi"},
    }

    resources = [
        one["containers"][0]["resources"] for one in (head(**EVERYTHING), worker(**EVERYTHING))
    ]

    assert resources == [
        {"limits": {"cpu": "1", "memory": "4Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
        {
            "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
            "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"},
        },
    ]


def test_a_head_without_cpus_for_tasks_has_those_that_it_asks_for() -> None:
    groups = {"head": {"requests": {"cpus": 3.5}, "env": {"B": "own"}}}
    fields = {
        **SMALL,
        "head": {"cpus": 0},
        "kuberay": {"groups": groups},
        "env": {"A": "all", "B": "all"},
    }

    sizes = head(**fields)["containers"][0]["resources"]
    assert (sizes["limits"]["cpu"], sizes["requests"]["cpu"]) == ("4", "3500m")
    assert spec(**fields)["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert [(env(pod)["A"], env(pod)["B"]) for pod in (head(**fields), worker(**fields))] == [
        ("all", "own"),
        ("all", "all"),
    ]


def test_each_group_asks_for_its_own_and_is_marked_with_its_own() -> None:
    # Schola's guide: the head requests 2 CPUs and 16 GiB of 8 and 48, workers 3 and 6 of 8 and 32.
    size = {"cpus": 8, "memory": "48GiB"}
    groups = {
        "head": {"requests": {"cpus": 2, "memory": "16GiB"}},
        "cpu": {
            "requests": {"cpus": 3},
            "labels": {"app": "worker-pod", "team": "vision"},
            "annotations": {"a": "b"},
        },
    }

    section = {"requests": {"memory": "6GiB"}, "labels": {"team": "robots"}, "groups": groups}
    found = spec(head=size, workers=[{"name": "cpu", **size}], kuberay=section)
    first, workers = (
        each["template"] for each in (found["headGroupSpec"], found["workerGroupSpecs"][0])
    )
    requests = [each["spec"]["containers"][0]["resources"]["requests"] for each in (first, workers)]
    assert requests == [{"cpu": "2000m", "memory": "16Gi"}, {"cpu": "3000m", "memory": "6Gi"}]
    marks = [
        {key: each["metadata"]["labels"].get(key) for key in ("app", "team")}
        for each in (first, workers)
    ]
    assert marks == [{"app": None, "team": "robots"}, {"app": "worker-pod", "team": "vision"}]
    assert workers["metadata"]["annotations"] == {"a": "b"}


def test_resources_labels_and_parameters_are_quoted_for_bash() -> None:
    group = {
        "name": "gpu",
        "min": 1,
        "max": 2,
        "resources": {"NVIDIA-A100-80GB-PCIe": 2},
        "labels": {"zone": "a"},
        "ray_start": {
            "metrics-export-port": 8080,
            "tracing-startup-hook": "a:b c",
            "no-redirect-output": True,
        },
    }

    found = spec(workers=[group])["workerGroupSpecs"][0]
    options = found["rayStartParams"]
    assert found["labels"] == {"ray.io/node-group": "gpu", "zone": "a"}
    assert options["resources"] == "'{\"NVIDIA-A100-80GB-PCIe\": 2}'"
    assert (options["metrics-export-port"], options["tracing-startup-hook"]) == ("8080", "'a:b c'")
    # KubeRay makes a flag of it.
    assert options["no-redirect-output"] == "true"


def test_a_group_may_run_another_image_than_the_head() -> None:
    file = spec_of(workers=[{"name": "gpu", "image": "isaac-ray"}, {"name": "cpu"}])
    found = documents(
        Inputs(file, file.kuberay, IMAGE, images={"gpu": "reg:5000/isaac-ray@sha256:1"})
    ).ray_cluster
    groups = [found["spec"]["headGroupSpec"], *found["spec"]["workerGroupSpecs"]]
    images = [group["template"]["spec"]["containers"][0]["image"] for group in groups]
    assert images == [IMAGE, "reg:5000/isaac-ray@sha256:1", IMAGE]


def test_ray_s_autoscaler_reads_the_resources_of_a_group() -> None:
    group = {"name": "gpu", "min": 0, "max": 2, "resources": {"A100": 2, "a/b:c": 1}}
    made_of = spec(workers=[group])["workerGroupSpecs"][0]
    assert autoscaling_config._get_custom_resources({}, made_of["rayStartParams"], "gpu") == {
        "A100": 2,
        "a/b:c": 1,
    }


def test_a_fixed_group_has_its_count_and_a_growing_one_the_autoscaler_s() -> None:
    sizes = ("replicas", "minReplicas", "maxReplicas", "idleTimeoutSeconds")
    groups = {
        one["groupName"]: {key: one.get(key) for key in sizes}
        for one in spec(**EVERYTHING)["workerGroupSpecs"]
    }
    assert groups == {
        "gpu": {"replicas": 2, "minReplicas": 2, "maxReplicas": 2, "idleTimeoutSeconds": None},
        "burst": {"replicas": None, "minReplicas": 1, "maxReplicas": 3, "idleTimeoutSeconds": 91},
        "none": {"replicas": 0, "minReplicas": 0, "maxReplicas": 0, "idleTimeoutSeconds": None},
    }


def test_gpus_are_asked_for_tolerated_and_hidden_from_everybody_else() -> None:
    gpu, plain = (
        worker(workers=[GPUS], kuberay={"runtime_class": "nvidia"}),
        head(kuberay={"runtime_class": "nvidia"}),
    )
    assert gpu["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert gpu["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert gpu["runtimeClassName"] == "nvidia"
    assert "NVIDIA_VISIBLE_DEVICES" not in env(gpu)
    assert "runtimeClassName" not in plain
    assert "tolerations" not in plain
    assert env(plain)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_nodes_with_gpus_and_without_have_places_of_their_own() -> None:
    places = {
        "node_selector": {"zone": "a"},
        "with_gpus": {"node_selector": {"pool": "gpu"}, "runtime_class": "nvidia"},
        "without_gpus": {"node_selector": {"pool": "cpu"}, "tolerations": [{"key": "cpu"}]},
        "groups": {"head": {"node_selector": {"pool": "head"}}},
    }

    gpu, plain = worker(workers=[GPUS], kuberay=places), head(workers=[GPUS], kuberay=places)
    assert (gpu["nodeSelector"], gpu["runtimeClassName"]) == (
        {"zone": "a", "pool": "gpu"},
        "nvidia",
    )
    assert plain["nodeSelector"] == {"zone": "a", "pool": "head"}
    assert plain["tolerations"] == [{"key": "cpu", "operator": "Exists"}]
    simulated = worker(workers=[GPUS], kuberay={**places, "simulated_gpus": True})
    assert simulated["nodeSelector"]["pool"] == "cpu"


def test_the_autoscaler_is_as_large_as_the_file_says() -> None:
    grows = [{"name": "cpu", "min": 0, "max": 2}]
    default = spec(workers=grows)["autoscalerOptions"]["resources"]
    assert default["requests"] == default["limits"] == {"cpu": "500m", "memory": "512Mi"}
    own = spec(workers=grows, kuberay={"autoscaler": {"cpus": 1.5, "memory": "1GiB"}})
    assert own["autoscalerOptions"]["resources"]["limits"] == {"cpu": "1500m", "memory": "1Gi"}


def test_simulated_gpus_are_numbers_of_ray_alone() -> None:
    found = made(workers=[GPUS], kuberay={"simulated_gpus": True}).ray_cluster
    group = found["spec"]["workerGroupSpecs"][0]
    pod = group["template"]["spec"]
    assert group["rayStartParams"]["num-gpus"] == "2"
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "4", "memory": "8Gi"}
    assert "tolerations" not in pod
    assert env(pod)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert found["metadata"]["annotations"]["io.trainyard/simulated-gpus"] == "true"


def test_settings_of_a_group_extend_or_replace_those_of_all_groups() -> None:
    whole = spec(**EVERYTHING)
    pods = [one["template"]["spec"] for one in (whole["headGroupSpec"], *whole["workerGroupSpecs"])]
    assert [pod["nodeSelector"] for pod in pods[:2]] == [
        {"pool": "training", "disk": "ssd"},
        {"pool": "training"},
    ]
    assert [pod["priorityClassName"] for pod in pods[:3]] == ["low", "high", "low"]
    assert pods[2]["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ]
    assert {"key": "lent", "operator": "Exists"}.items() <= pods[1]["tolerations"][2].items()
    assert "affinity" not in pods[0]


def test_nodes_are_spread_over_hosts() -> None:
    term = {
        "labelSelector": {
            "matchLabels": {"io.trainyard/cluster": "lab", "ray.io/is-ray-node": "yes"}
        },
        "topologyKey": "kubernetes.io/hostname",
    }

    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": term}
        ]
    }

    one_host = {"storage": {"size": "1GiB", "access": "ReadWriteOnce"}}
    found = [
        worker(**SMALL, kuberay=more).get("affinity")
        for more in ({"spread": "required"}, {"spread": "none"}, {}, one_host)
    ]

    assert found == [
        {"podAntiAffinity": required},
        None,
        {"podAntiAffinity": preferred},
        {"podAffinity": required},
    ]


def test_volumes_are_seen_where_the_file_says() -> None:
    pod = worker(**EVERYTHING)
    volumes = {volume.pop("name"): volume for volume in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]

    assert {mount["mountPath"]: volumes[mount["name"]] for mount in mounts} == {
        "/dev/shm": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        "/tmp/ray": {"emptyDir": {}},
        "/out": {"persistentVolumeClaim": {"claimName": "lab-outputs"}},
        "/home/trainyard": {"emptyDir": {}},
        "/datasets": {"persistentVolumeClaim": {"claimName": "datasets", "readOnly": True}},
        "/etc/mine": {"configMap": {"name": "mine"}},
        "/etc/keys": {"secret": {"secretName": "keys"}},
        "/srv": {"hostPath": {"path": "/srv", "type": "Directory"}},
    }

    assert [mount["mountPath"] for mount in mounts if mount.get("readOnly")] == ["/datasets"]


def test_an_empty_directory_of_each_node_may_be_limited_or_in_memory() -> None:
    volumes = [
        {"target": "/scratch", "empty_dir": {"size": "10GiB"}},
        {"target": "/cache", "empty_dir": {"memory": True}},
        {"target": "/more", "empty_dir": {}},
    ]
    assert [
        volume["emptyDir"]
        for volume in worker(**SMALL, kuberay={"volumes": volumes})["volumes"][-3:]
    ] == [
        {"sizeLimit": "10Gi"},
        {"medium": "Memory"},
        {},
    ]


def test_only_the_head_is_told_of_checkpoint_storage_and_only_of_a_claim() -> None:
    def variables(pod: Any) -> dict[str, str]:
        (container,) = pod["spec"]["containers"]
        return {variable["name"]: variable["value"] for variable in container["env"]}

    cluster = made(**EVERYTHING).ray_cluster
    head = cluster["spec"]["headGroupSpec"]["template"]
    assert variables(head)["TRAINYARD_CHECKPOINT_STORAGE"] == "/out/.trainyard/lab"
    workers = [group["template"] for group in cluster["spec"]["workerGroupSpecs"]]
    workers += [made(**SMALL).ray_cluster["spec"]["headGroupSpec"]["template"]]
    assert not any("TRAINYARD_CHECKPOINT_STORAGE" in variables(pod) for pod in workers)


def test_the_claim_is_made_as_the_file_asks() -> None:
    assert made(**SMALL).claim is None
    assert made(**SMALL, kuberay={"storage": {"claim": "mine"}}).claim is None
    found = made(**EVERYTHING).claim
    assert found is not None
    assert found["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "nfs",
        "resources": {"requests": {"storage": "20Gi"}},
    }


def test_variables_arrive_as_the_file_has_them() -> None:
    found = env(
        worker(**SMALL, env={"A": "$(HOME) $$ $x", "RAY_USAGE_STATS_ENABLED": "1", "HOME": "/mine"})
    )
    assert (found["A"], found["HOME"]) == ("$$(HOME) $$$$ $$x", "/mine")
    assert found["RAY_USAGE_STATS_ENABLED"] == "0"
    assert not any(name.startswith("RAY_AUTH") for name in found)


def test_a_user_whom_the_image_does_not_know_has_a_home() -> None:
    assert {name: env(worker(**EVERYTHING)).get(name) for name in ("HOME", "USER", "LOGNAME")} == {
        "HOME": "/home/trainyard",
        "USER": "ray",
        "LOGNAME": "ray",
    }
    assert "HOME" not in env(worker(**SMALL))
    assert worker(**EVERYTHING)["securityContext"] == {
        "runAsUser": 12345,
        "runAsGroup": 0,
        "fsGroup": 6,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_restricted_profile_is_kept_by_every_container() -> None:
    pod = worker(**RESTRICTED)
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (
        True,
        1000,
    )
    kept = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    autoscaler = spec(**RESTRICTED)["autoscalerOptions"]
    assert pod["containers"][0]["securityContext"] == autoscaler["securityContext"] == kept
    assert {"name": "HOME", "value": "/tmp/ray"} in autoscaler["env"]
    assert "autoscalerOptions" not in spec(workers=[{"name": "cpu", "min": 2, "max": 2}])


def test_nodes_cannot_ask_kubernetes_anything_unless_they_must() -> None:
    assert worker(**SMALL)["automountServiceAccountToken"] is False
    assert head(**SMALL)["automountServiceAccountToken"] is False
    assert "automountServiceAccountToken" not in head(**RESTRICTED)
    assert worker(**EVERYTHING)["serviceAccountName"] == "trainer"
    assert "automountServiceAccountToken" not in worker(**EVERYTHING)
