"""Convert a command line of Isaac Lab's launch.py into its RayClusters.

Flags and defaults are those of launch.py and util.py. The result equals that of
kuberay.yaml.jinja, in all versions of Isaac Lab from
source/standalone/workflows/ray to isaaclab_contrib.rl.ray.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

from trainyard.errors import RequestError
from trainyard.importing.command_line import Parser, script_of

SCRIPT = "launch"
# The flags that take one value for each group of workers: type, and launch.py's default.
_OF_GROUPS: dict[str, tuple[type, Any]] = {
    "worker_accelerator": (str, "nvidia-l4"),
    "gpu_per_worker": (int, 1),
    "cpu_per_worker": (int, 8),
    "ram_gb_per_worker": (int, 16),
    "num_workers": (int, 1),
}
NOTES = (
    "launch.py's MLflow server is not made: metrics are in results/RUN and in the report.",
    (
        "launch.py opens each head to the network (LoadBalancer, no token); here it has a token: "
        "trainyard cluster.open."
    ),
    "Only GKE has nodes with the labels cloud.google.com/gke-accelerator and iam.gke.io/...: on "
    "another Kubernetes, "
    "take node_selector out.",
)


def is_one(words: Sequence[str]) -> bool:
    """Say whether a command line runs launch.py, as a file or as a module."""
    return _after_script(words) is not None


def clusters(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the RayClusters of a command line.

    Raises RequestError if launch.py rejects the line.
    """
    given = _parser().parse_args(_after_script(words))
    if "head" in given.name:
        raise RequestError(f"{SCRIPT}.py rejects a name that contains `head`", where=given.name)

    groups = _groups(vars(given))
    names = [given.name]
    if given.num_clusters != 1:
        names = [f"{given.name}-{number}" for number in range(given.num_clusters)]
    return [_ray_cluster(name, given, groups) for name in names]


def _after_script(words: Sequence[str]) -> list[str] | None:
    index = next((index for index in range(len(words)) if script_of(words, index) == SCRIPT), None)
    if index is None:
        return None
    return list(words[index + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = Parser(SCRIPT, command="cluster.import")
    parser.add_argument("--cluster_host", default="google_cloud", choices=["google_cloud"])
    parser.add_argument("--name", default="isaacray")
    parser.add_argument("--namespace", default="default")
    # Spelled as in launch.py.
    parser.add_argument("--service_acount_name", default="default")
    parser.add_argument("--image", required=True)
    for flag, (kind, default) in _OF_GROUPS.items():
        parser.add_argument(f"--{flag}", nargs="+", type=kind, default=[default])
    parser.add_argument("--num_clusters", type=int, default=1)
    parser.add_argument("--num_head_cpu", type=float, default=8)
    parser.add_argument("--head_ram_gb", type=int, default=8)
    return parser


def _groups(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each group's values.

    A missing value becomes the largest of its flag, as in launch.py.
    """
    count = max(len(given[flag]) for flag in _OF_GROUPS)
    groups: list[dict[str, Any]] = [{} for _ in range(count)]
    for flag in _OF_GROUPS:
        values = chain(given[flag], repeat(max(given[flag])))
        for group, value in zip(groups, values, strict=False):
            group[flag] = value
    return groups


def _ray_cluster(
    name: str, given: argparse.Namespace, groups: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    head = _pod(given, cpus=given.num_head_cpu, memory_gb=given.head_ram_gb)
    workers = []
    for group in groups:
        workers.append(
            {
                "groupName": f"{group['worker_accelerator']}x{group['gpu_per_worker']}-cpu-{group['cpu_per_worker']}"
                f"-ram-gb-{group['ram_gb_per_worker']}",
                "replicas": group["num_workers"],
                "rayStartParams": {},
                "template": _pod(
                    given,
                    cpus=group["cpu_per_worker"],
                    memory_gb=group["ram_gb_per_worker"],
                    gpus=group["gpu_per_worker"],
                    accelerator=group["worker_accelerator"],
                ),
            }
        )

    return {
        "apiVersion": "ray.io/v1alpha1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": given.namespace},
        "spec": {
            # With launch.py, tasks run only on workers.
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": head},
            "workerGroupSpecs": workers,
        },
    }


def _pod(
    given: argparse.Namespace, *, cpus: float, memory_gb: int, gpus: int = 0, accelerator: str = ""
) -> dict[str, Any]:
    # launch.py's template takes a GB as 10^9 bytes.
    limits: dict[str, str] = {"cpu": f"{cpus:g}", "memory": f"{memory_gb}G"}
    spec: dict[str, Any] = {"nodeSelector": {"iam.gke.io/gke-metadata-server-enabled": "true"}}
    if gpus:
        limits["nvidia.com/gpu"] = str(gpus)

    if accelerator:
        spec["nodeSelector"]["cloud.google.com/gke-accelerator"] = accelerator
        spec["tolerations"] = [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        ]

    if given.service_acount_name != "default":
        spec["serviceAccountName"] = given.service_acount_name

    return {
        "spec": {
            **spec,
            "containers": [{"name": "ray", "image": given.image, "resources": {"limits": limits}}],
        }
    }
