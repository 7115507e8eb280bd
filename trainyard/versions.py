"""Every pinned version, in one place."""

import re

RAY = "2.60.0"
# The oldest Ray that Trainyard was tested with: the version that Isaac Lab's page installs.
OLDEST_RAY = "2.31.0"
# The first Ray whose dashboard sends a log file unchanged; older ones put a mark before each block
# (Ray's state_head.py).
RAY_WITHOUT_MARKS = "2.45.0"
RUNNER_PROTOCOL = 1
# The name of this distribution (pyproject.toml), which is on no package index.
DISTRIBUTION = "trainyard-ray"
# The packages of each extra of pyproject.toml, for pip: Trainyard itself is on no index.
_PACKAGES = {
    "local": f"'ray[default]=={RAY}' tensorboardX",
    "aws": "boto3",
    "ec2": f"boto3 'ray[default]=={RAY}'",
    "tune": "cmaes optuna",
}
# The newest KubeRay tested with its real operator (docs/decisions/0010); its chart has this number.
KUBERAY = "1.5.1"
# The oldest operator with authOptions, by which a RayCluster gets Ray's token
# (ray-operator/apis/ray/v1/raycluster_types.go).
OLDEST_KUBERAY = "1.5.0"
MICROK8S = "1.34/stable"


def is_too_old(ray: str) -> bool:
    """Say whether a Ray ("2.36.0", "3.0.0.dev0") is older than OLDEST_RAY."""
    return _numbers(ray) < _numbers(OLDEST_RAY)


def marks_log_files(ray: str) -> bool:
    return _numbers(ray) < _numbers(RAY_WITHOUT_MARKS)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def installing(extra: str) -> str:
    return f"pip install {_PACKAGES[extra]}"
