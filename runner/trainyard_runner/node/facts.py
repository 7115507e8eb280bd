"""What a node says of itself: hardware, versions, disk, GPUs, torch; and how fast it gets other
nodes' objects.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import ray

# Looked up one by one: to list everything that is installed takes a second in a large image.
_PACKAGES = (
    *(
        "torch",
        "jax",
        "tensorflow",
        "numpy",
        "gymnasium",
        "gym",
        "stable-baselines3",
        "sb3-contrib",
        "rsl-rl-lib",
    ),
    *(
        "rl-games",
        "skrl",
        "isaaclab",
        "isaacsim",
        "schola",
        "mujoco",
        "transformers",
        "lightning",
        "tensorboard",
    ),
    *("tensorboardX", "wandb", "mlflow", "optuna"),
)
# Prints {"version", "count", "wrong": [GPUs whose product of two matrices is not the known one]}.
_TORCH = """
import json, torch
wrong = []
for gpu in range(torch.cuda.device_count()):
    a = torch.full((256, 256), 0.5, device=f"cuda:{gpu}")
    if not bool((a @ a == 64.0).all()):
        wrong.append(gpu)
print(json.dumps({"version": torch.__version__, "count": torch.cuda.device_count(), "wrong": wrong}))
"""
# Prints [{"name", "cpu": whether it is one}]. By vulkan_core.h: sType 1 is VkInstanceCreateInfo's,
# type 4 is a CPU.
_VULKAN = """
import ctypes, json
vulkan = ctypes.CDLL("libvulkan.so.1")
instance, count, found = ctypes.c_void_p(), ctypes.c_uint32(), []
if vulkan.vkCreateInstance((ctypes.c_uint32 * 16)(1), None, ctypes.byref(instance)) == 0:
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    devices = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices)
    for device in devices:
        properties = ctypes.create_string_buffer(4096)
        vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
        found.append({"name": properties.raw[20:276].split(bytes(1))[0].decode(), "cpu": properties.raw[16] == 4})
print(json.dumps(found))
"""


def gather(question: dict[str, Any]) -> dict[str, Any]:
    """Answer what the gate asks.

    `question`: "gpus" (ask the node's own tools for real GPUs), "torch" (try it), "isolated" (Ray
    gave this task one GPU), "graphics" (which devices Vulkan finds), "timeout" in seconds for each
    program.
    """
    worker = ray._private.worker.global_worker
    gpus = [str(gpu) for gpu in ray.get_gpu_ids()]
    found: dict[str, Any] = {
        "ray": ray.__version__,
        "python": platform.python_version(),
        "disk": _space(worker.node.get_session_dir_path()),
        "shm": _space("/dev/shm"),  # noqa: S108
        "assigned": gpus,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "machine": _machine(),
    }

    if question["gpus"]:
        found["nvidia_smi"] = _nvidia_smi(question["timeout"])

    if question["graphics"]:
        found["graphics"] = vulkan(question["timeout"], os.environ)

    if question["torch"]:
        found["torch"] = _torch(question["timeout"], visible=_visible_on_node())
        if question["isolated"] and found["torch"].get("count") is not None:
            found["torch_isolated"] = _torch(question["timeout"], visible=",".join(gpus))

    return found


def fetch(references: dict[str, list[Any]], timeout: float) -> dict[str, Any]:
    """Get each node's bytes; return {"node": {"rate": MB/s} or {"error": text}}."""
    results: dict[str, Any] = {}
    for node, (reference,) in references.items():
        began = time.monotonic()
        try:
            size = len(ray.get(reference, timeout=timeout))
        except Exception as error:  # anything Ray raises is the result
            results[node] = {
                "error": f"{type(error).__name__} after {time.monotonic() - began:.0f} s"
            }
            continue
        results[node] = {"rate": round(size / 1e6 / max(time.monotonic() - began, 1e-6), 1)}
    return results


def _space(path: str) -> dict[str, int] | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return {"free": usage.free, "total": usage.total}


def _nvidia_smi(timeout: float) -> dict[str, Any]:
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=timeout, check=False
        )
    except FileNotFoundError:
        return {"error": "nvidia-smi is not installed there"}
    except subprocess.TimeoutExpired:
        return {"error": f"nvidia-smi did not answer within {timeout:.0f} s"}
    if answer.returncode != 0:
        return {"error": f"nvidia-smi: {(answer.stdout + answer.stderr).strip()[:200]}"}
    models = gpu_models(answer.stdout, visible=_visible_on_node())
    return {"count": len(models), "models": models}


def gpu_models(listing: str, *, visible: str | None) -> list[str]:
    """Return the models of the GPUs that `nvidia-smi -L` lists, as far as a node may use them.

    nvidia-smi shows every GPU of the machine; two nodes on one machine have their own ones each.
    `visible` is the node's CUDA_VISIBLE_DEVICES: indices or UUIDs, None for all.
    """
    listed = re.findall(r"^GPU (\d+): (.*?) \(UUID: ([^)]+)\)", listing, re.MULTILINE)
    allowed = None
    if visible is not None:
        allowed = {name.strip() for name in visible.split(",")}
    return [model for index, model, uuid in listed if allowed is None or {index, uuid} & allowed]


def _visible_on_node() -> str | None:
    """Return the CUDA_VISIBLE_DEVICES that the node was started with; a worker's own names the
    task's GPUs alone.
    """
    try:
        entries = Path("/proc", os.environ["RAY_RAYLET_PID"], "environ").read_bytes().split(b"\0")
    except (KeyError, OSError):
        return None
    found = [
        entry.partition(b"=")[2] for entry in entries if entry.startswith(b"CUDA_VISIBLE_DEVICES=")
    ]
    return found[0].decode() if found else None


def _torch(timeout: float, *, visible: str | None) -> dict[str, Any]:
    """Try torch in a process of its own: it is large, may hang in a driver, and must not stay in
    the worker.
    """
    if importlib.util.find_spec("torch") is None:
        return {"missing": True}
    environment = {
        name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"
    }
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    result: dict[str, Any] = _printed("torch", _TORCH, timeout, environment)
    return result


def vulkan(timeout: float, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the "devices" that Vulkan finds, or an "error"; and what NVIDIA's container runtime
    was asked to mount.
    """
    found = _printed("Vulkan", _VULKAN, timeout, environ)
    if isinstance(found, list):
        found = {"devices": found}
    else:
        found = found
    return {**found, "capabilities": environ.get("NVIDIA_DRIVER_CAPABILITIES")}


def _printed(what: str, program: str, timeout: float, environ: Mapping[str, str]) -> Any:
    """Return what a Python program prints as JSON, or {"error": ...}."""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"{what} did not answer within {timeout:.0f} s"}

    if answer.returncode != 0:
        return {"error": (answer.stderr.strip().splitlines() or ["no output"])[-1][:300]}

    return json.loads(answer.stdout.splitlines()[-1])


def _machine() -> dict[str, Any]:
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
    return (
        _matched(r"^model name\s*: (.+)$", "/proc/cpuinfo")
        or platform.processor()
        or platform.machine()
    )


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
