"""Recognize other tools' YAML files, with a hint for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainyard.spec.yaml_source import LARGEST

Top = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    `matches` takes a document's top level; `remedy` is the hint. `ours` is
    Trainyard's name for a kind that Trainyard itself reads.
    """

    name: str
    matches: Callable[[Top], bool]
    remedy: str
    ours: str = ""


def _is_ray(*kinds: str) -> Callable[[Top], bool]:
    return lambda file: (
        str(file.get("apiVersion", "")).startswith("ray.io/") and file.get("kind") in kinds
    )


def _has(*keys: str) -> Callable[[Top], bool]:
    return lambda file: all(key in file for key in keys)


def _is_sky(file: Top) -> bool:
    known = {"name", "run", "setup", "resources", "num_nodes", "workdir", "envs", "secrets"}
    known.add("file_mounts")
    is_service = isinstance(file.get("service"), Mapping)
    return "run" in file and (file.keys() <= known or is_service or len(file.keys() & known) > 2)


def _is_chart_values(file: Top) -> bool:
    """Match values of KubeRay's ray-cluster chart (0.3 to 1.6)."""
    node_keys = ("head", "worker", "additionalWorkerGroups")
    known = {*node_keys, "image", "nameOverride", "fullnameOverride", "imagePullSecrets", "common"}
    known |= {"gcsFaultTolerance", "service", "annotations", "headServiceSuffix"}
    has_nodes = any(isinstance(file.get(key), Mapping) for key in node_keys)
    return has_nodes and file.keys() <= known


def _is_runtime_env(file: Top) -> bool:
    # A file of Isaac Lab's task_runner may have `pip` and `py_modules`, but none of these keys.
    distinct = {"env_vars", "working_dir", "uv", "conda", "excludes", "image_uri", "container"}
    distinct |= {"nsight", "java_jars"}
    known = {*distinct, "pip", "py_modules", "config", "py_executable"}
    return bool(file.keys() & distinct) and file.keys() <= known


def _is_rllib_example(file: Top) -> bool:
    experiments = [value for value in file.values() if isinstance(value, Mapping)]
    return any("run" in experiment and "env" in experiment for experiment in experiments)


def _is_job(file: Top) -> bool:
    if "command" in file:
        return True
    tasks = file.get("tasks")
    if not isinstance(tasks, list):
        return False
    return any(isinstance(task, Mapping) and "command" in task for task in tasks)


_COMMANDS = "`command:` of a job.yaml ([bash, -c, '...'])"
# The first kind that matches wins.
KINDS = (
    Kind(
        "a RayCluster of KubeRay",
        _is_ray("RayCluster"),
        "Write a cluster file from it: trainyard cluster.import FILE. Or use a cluster that runs "
        "already: trainyard cluster.new NAME --backend existing.",
    ),
    Kind(
        "a RayJob or RayService of KubeRay",
        _is_ray("RayJob", "RayService", "RayCronJob"),
        "Its entrypoint is the `command:` of a job.yaml, its cluster a cluster file: trainyard "
        "cluster.import FILE.",
    ),
    Kind(
        "an object of Kubernetes",
        _has("apiVersion", "kind"),
        "Trainyard makes its own (docs/kuberay.md): trainyard cluster.new NAME --backend kuberay",
    ),
    Kind(
        "a cluster file of `ray up`",
        _has("cluster_name", "provider"),
        "On AWS, write a cluster file from it: trainyard cluster.import FILE.",
    ),
    Kind(
        "a task of dstack",
        lambda file: file.get("type") in ("task", "service", "dev-environment"),
        f"Its commands are the {_COMMANDS}, its resources `resources:`.",
    ),
    Kind(
        "a fleet, volume or gateway of dstack",
        lambda file: file.get("type") in ("fleet", "volume", "gateway"),
        "A cluster file describes machines: trainyard cluster.new NAME --backend ...",
    ),
    Kind(
        "a sweep of Weights & Biases",
        _has("method", "parameters"),
        "Its parameters are `tune: {space: ...}` of a job.yaml, its program the `command:`: "
        "docs/tune.md.",
    ),
    Kind(
        "a job of Azure ML",
        lambda file: "azureml" in str(file.get("$schema")),
        f"Its command is the {_COMMANDS}, its environment an image: docs/images.md.",
    ),
    # These two come before the kinds below, so that a file of Trainyard with a mistake is not taken
    # for another tool's.
    Kind(
        "a cluster file of Trainyard",
        _has("name", "backend"),
        "It is used as it is: trainyard cluster.up -f FILE.",
        ours="cluster file",
    ),
    Kind(
        "a job file of Trainyard",
        _is_job,
        "It is used as it is: trainyard train.dispatch DIRECTORY.",
        ours="job file",
    ),
    Kind(
        "a task of SkyPilot",
        _is_sky,
        f"`run` becomes the {_COMMANDS}, `setup` becomes `runtime_env:` or the image, `envs` becomes "
        "`env:`.",
    ),
    Kind(
        "a job of Anyscale",
        lambda file: (
            "entrypoint" in file
            and bool(file.keys() & {"compute_config", "image_uri", "containerfile"})
        ),
        f"Its `entrypoint` is the {_COMMANDS}; its `requirements` become `runtime_env:`, its "
        "`compute_config` becomes a cluster file.",
    ),
    Kind(
        "a configuration of Ray Serve",
        lambda file: isinstance(file.get("applications"), list),
        "Trainyard deploys no models. `serve deploy FILE` does, at an address that trainyard "
        "cluster.open shows.",
    ),
    Kind(
        "a runtime_env of Ray",
        _is_runtime_env,
        "A job.yaml names it, `runtime_env: FILE`, or has it below that key: docs/jobs.md.",
        ours="runtime_env file",
    ),
    Kind(
        "a file of `rllib train`",
        _is_rllib_example,
        "Its `run`, `env`, `config` and `stop` are flags of jobs/rllib: docs/examples.md.",
    ),
    Kind(
        "a values file of KubeRay's chart",
        _is_chart_values,
        "helm template NAME kuberay/ray-cluster -f FILE > ray-cluster.yaml, then trainyard "
        "cluster.import ray-cluster.yaml. Helm adds the defaults of the chart's version.",
    ),
    Kind(
        "a file of Docker Compose",
        lambda file: isinstance(file.get("services"), Mapping),
        "Trainyard makes the containers of a cluster itself: trainyard cluster.new NAME "
        "--backend compose. A service that trains is a job: docs/jobs.md.",
    ),
    Kind(
        "a configuration of Hydra",
        lambda file: isinstance(file.get("defaults"), list) or "hydra" in file,
        "It travels with the program that reads it: put both into a directory with a job.yaml, "
        "`command: [python, train.py, KEY=VALUE]`.",
    ),
    Kind(
        "an environment of conda",
        lambda file: isinstance(file.get("dependencies"), list),
        "Packages are `runtime_env: {uv: [...]}` of a job.yaml, or belong in the image: "
        "docs/images.md.",
    ),
    Kind(
        "an operation of ado",
        _has("spaces", "operation"),
        "ado reads it: jobs/ado runs `ado create`, and docs/examples.md says how.",
    ),
    Kind(
        "a configuration of rl_games",
        lambda file: isinstance(file.get("params"), Mapping) and "algo" in file["params"],
        "The training reads it: put it into the directory of the job that runs the training.",
    ),
)


def kind_of(documents: Iterable[Any]) -> Kind | None:
    tops = [document for document in documents if isinstance(document, Mapping)]
    for kind in KINDS:
        if any(kind.matches(top) for top in tops):
            return kind
    return None


def documents_of(file: Path) -> list[Any]:
    """Return a YAML file's documents, with all values as text.

    A Kubernetes List becomes its items. Returns [] if the file is unreadable,
    not YAML, or larger than LARGEST.
    """
    # Reading a pipe would block.
    if not file.is_file():
        return []
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(LARGEST + 1)
        if len(text) > LARGEST:
            return []
        # BaseLoader converts no value: `on` stays text, and an impossible date is no error.
        return list(unfolded(yaml.load_all(text, Loader=yaml.BaseLoader)))
    # Thousands of nested lists raise RecursionError.
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return []


def unfolded(documents: Iterable[Any]) -> Iterator[Any]:
    """Yield the non-empty documents, and a Kubernetes List as its items."""
    for document in documents:
        is_list = isinstance(document, Mapping) and document.get("kind") == "List"
        if is_list and isinstance(document.get("items"), list):
            yield from unfolded(document["items"])
        elif document is not None:
            yield document
