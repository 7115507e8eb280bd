"""Cluster files for KubeRay, a short one and one with every field, and the objects made of them."""

from __future__ import annotations

from typing import Any

from trainyard.backends.kuberay.manifest import Documents, documents
from trainyard.backends.kuberay.manifest.pod import Inputs
from trainyard.spec.cluster import ClusterSpec

IMAGE = "reg:5000/ray-cpu@sha256:0"
GPUS = {"name": "gpu", "count": 2, "cpus": 4, "memory": "8GiB", "gpus": 2}
BURST = {"name": "burst", "min": 1, "max": 3, "idle_timeout": "90.5s"}
EVERYTHING: dict[str, Any] = {
    "head": {"cpus": 0, "memory": "4GiB"},
    "workers": [GPUS, BURST, {"name": "none", "count": 0}],
    "env": {"A": "1"},
    "kuberay": {
        "namespace": "team",
        "node_selector": {"pool": "training"},
        "tolerations": [
            {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
            {},
        ],
        "spread": "required",
        "runtime_class": "nvidia",
        "priority_class": "low",
        "groups": {
            "head": {"node_selector": {"disk": "ssd"}, "spread": "none"},
            "gpu": {"priority_class": "high", "tolerations": [{"key": "lent"}]},
        },
        "requests": {"cpus": 0.5, "memory": "1GiB"},
        "shm_size": "1GiB",
        "volumes": [
            {"target": "/datasets", "claim": "datasets", "read_only": True},
            {"target": "/etc/mine", "config_map": "mine"},
            {"target": "/etc/keys", "secret": "keys"},
            {"target": "/srv", "host_path": "/srv"},
        ],
        "outputs": "/out",
        "storage": {"size": "20GiB", "storage_class": "nfs"},
        "security": {"run_as_user": 12345, "run_as_group": 0, "fs_group": 6},
        "service_account": "trainer",
        "labels": {"team": "robots"},
        "annotations": {"example.com/owner": "me"},
    },
}
SMALL: dict[str, Any] = {"workers": [{"name": "cpu"}]}
RESTRICTED: dict[str, Any] = {
    "workers": [BURST],
    "kuberay": {"security": {"restricted": True, "run_as_user": 1000}},
}


def spec_of(**fields: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", **fields}, context={})


def made(*, pull_secrets: tuple[str, ...] = (), **fields: Any) -> Documents:
    spec = spec_of(**fields)
    return documents(Inputs(spec, spec.kuberay, IMAGE, pull_secrets=pull_secrets))
