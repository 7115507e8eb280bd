"""What a node is made of: processor, memory, GPU driver, and the versions of what trainings use."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

# Looked up one by one: to list everything that is installed takes a second in a large image.
_PACKAGES = (
    *("torch", "jax", "tensorflow", "numpy", "gymnasium", "gym", "stable-baselines3", "sb3-contrib", "rsl-rl-lib"),
    *("rl-games", "skrl", "isaaclab", "isaacsim", "schola", "mujoco", "transformers", "lightning", "tensorboard"),
    *("tensorboardX", "wandb", "mlflow", "optuna"),
)


def describe() -> dict[str, Any]:
    """Return what can be read without starting a program; what cannot is None."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory": _memory(),
        "system": _system(),
        "driver": _matched(r"Kernel Module\D*([\d.]+)", "/proc/driver/nvidia/version"),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _cpu() -> str:
    return _matched(r"^model name\s*: (.+)$", "/proc/cpuinfo") or platform.processor() or platform.machine()


def _memory() -> int | None:
    """Return what this node may use: the machine's memory, or its container's limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    limit = _matched(r"^(\d+)$", "/sys/fs/cgroup/memory.max")
    return min(total, int(limit)) if limit else total


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name}, kernel {platform.release()}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except Exception:  # a damaged installation is no reason to fail
        return None


def _matched(pattern: str, path: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None
