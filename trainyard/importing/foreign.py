"""YAML files of other tools: which tool's a file is, and what takes it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainyard.errors import RequestError


@dataclass(frozen=True)
class Kind:
    """A kind of file. `matches` is asked of its top level; `remedy` says where its content belongs here."""

    name: str
    matches: Callable[[Mapping[str, Any]], bool]
    remedy: str


def _is_ray(*kinds: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda file: str(file.get("apiVersion", "")).startswith("ray.io/") and file.get("kind") in kinds


def _has(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda file: all(key in file for key in keys)


KINDS = (
    Kind(
        "a RayCluster of KubeRay",
        _is_ray("RayCluster"),
        "Write the cluster file that it describes: trainyard cluster.import FILE. A cluster that runs is used as it "
        "is: trainyard cluster.new NAME --backend existing.",
    ),
    Kind(
        "a RayJob or RayService of KubeRay",
        _is_ray("RayJob", "RayService", "RayCronJob"),
        "Its entrypoint is the `command:` of a job.yaml, its cluster a cluster file: trainyard cluster.new NAME "
        "--backend kuberay.",
    ),
    Kind(
        "an object of Kubernetes",
        _has("apiVersion", "kind"),
        "Trainyard makes its own: trainyard cluster.new NAME --backend kuberay, and docs/kuberay.md.",
    ),
    Kind(
        "a cluster file of `ray up`",
        _has("cluster_name", "provider"),
        "On AWS, write the cluster file that it describes: trainyard cluster.import FILE.",
    ),
    Kind(
        "a task of dstack",
        lambda file: file.get("type") in ("task", "service", "dev-environment", "fleet"),
        "Its commands are the `command:` of a job.yaml ([bash, -c, '...']), its resources `resources:`.",
    ),
    Kind(
        "a task of SkyPilot",
        lambda file: "run" in file and ({"resources", "setup", "num_nodes", "workdir", "envs"} & file.keys() != set()),
        "Its `run` is the `command:` of a job.yaml ([bash, -c, '...']), `setup` its `runtime_env:` or the image, "
        "`envs` its `env:`.",
    ),
    Kind(
        "a workflow of GitHub",
        _has("on", "jobs"),
        "A step of it may run `trainyard train.dispatch`; there is nothing to import.",
    ),
    Kind(
        "a cluster file of Trainyard",
        _has("backend"),
        "It is used as it is: trainyard cluster.up -f FILE.",
    ),
    Kind(
        "a job file of Trainyard",
        _has("command"),
        "It is used as it is: trainyard train.dispatch DIRECTORY.",
    ),
)


def refuse(file: Path) -> None:
    """Raise RequestError for a file that is known to be another tool's, or one of ours; what it is not is not said."""
    try:
        found = next(iter(yaml.safe_load_all(file.read_text(encoding="utf-8"))), None)
    except (OSError, ValueError, yaml.YAMLError):
        return
    if not isinstance(found, Mapping):
        return
    # YAML 1.1 reads `on` as true.
    top = {"on" if key is True else str(key): value for key, value in found.items()}
    kind = next((kind for kind in KINDS if kind.matches(top)), None)
    if kind is not None:
        raise RequestError(f"{file} is {kind.name}: train.import reads files of Isaac Lab", hint=kind.remedy)
