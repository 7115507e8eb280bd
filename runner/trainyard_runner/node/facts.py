"""A node's hardware and software, and its fetch rate from other nodes."""

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

from trainyard_runner.wire.text import last_line

# Each is looked up separately: listing all installed packages takes a second in a large image.
_PACKAGES = (
    "torch",
    "jax",
    "tensorflow",
    "numpy",
    "gymnasium",
    "gym",
    "stable-baselines3",
    "sb3-contrib",
    "rsl-rl-lib",
    "rl-games",
    "skrl",
    "isaaclab",
    "isaacsim",
    "schola",
    "mujoco",
    "transformers",
    "lightning",
    "tensorboard",
    "tensorboardX",
    "wandb",
    "mlflow",
    "optuna",
)
# Prints {"version", "count", "wrong"}: "wrong" lists GPUs that multiply two matrices incorrectly.
_TORCH = """
import json, torch
wrong = []
for gpu in range(torch.cuda.device_count()):
    a = torch.full((256, 256), 0.5, device=f"cuda:{gpu}")
    if not bool((a @ a == 64.0).all()):
        wrong.append(gpu)
print(json.dumps({"version": torch.__version__, "count": torch.cuda.device_count(), "wrong": wrong}))
"""
# Prints a list of Vulkan's devices, {"name", "cpu"}: "cpu" is true for a software renderer. In
# vulkan_core.h, VkInstanceCreateInfo has the sType 1, and a CPU has the device type 4.
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
    """Collect the facts of a node for the smoke test.

    `question` has "timeout" (seconds for each program) and booleans. "gpus":
    run nvidia-smi. "torch": try torch. "isolated": this task has one GPU; try
    torch with only that GPU, too. "graphics": list Vulkan's devices.
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

    timeout = question["timeout"]
    if question["gpus"]:
        found["nvidia_smi"] = _nvidia_smi(timeout)
    if question["graphics"]:
        found["graphics"] = vulkan(timeout, os.environ)
    if question["torch"]:
        found["torch"] = _torch(timeout, visible=_visible_on_node())
        if question["isolated"] and found["torch"].get("count") is not None:
            found["torch_isolated"] = _torch(timeout, visible=",".join(gpus))

    return found


def fetch(references: dict[str, list[Any]], timeout: float) -> dict[str, Any]:
    """Fetch each node's object; return {"rate": MB/s} or {"error": text}."""
    results: dict[str, Any] = {}
    for node, (reference,) in references.items():
        began = time.monotonic()
        try:
            size = len(ray.get(reference, timeout=timeout))
        except Exception as error:  # any error of Ray is a result
            seconds = time.monotonic() - began
            results[node] = {"error": f"{type(error).__name__} after {seconds:.0f} s"}
            continue
        seconds = max(time.monotonic() - began, 1e-6)
        results[node] = {"rate": round(size / 1e6 / seconds, 1)}
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
        return {"error": "nvidia-smi is not installed on this node"}
    except OSError as error:
        return {"error": f"nvidia-smi cannot be run: {error.strerror}"}
    except subprocess.TimeoutExpired:
        return {"error": f"nvidia-smi did not answer within {timeout:.0f} s"}

    if answer.returncode != 0:
        output = (answer.stdout + answer.stderr).strip()
        return {"error": f"nvidia-smi: {output[:200]}"}
    models = gpu_models(answer.stdout, visible=_visible_on_node())
    return {"count": len(models), "models": models}


def gpu_models(listing: str, *, visible: str | None) -> list[str]:
    """Return models of GPUs that `nvidia-smi -L` lists and this node may use.

    Nodes may share a machine, of which nvidia-smi lists every GPU. `visible`:
    the node's CUDA_VISIBLE_DEVICES, indices or UUIDs; None for all.
    """
    listed = re.findall(r"^GPU (\d+): (.*?) \(UUID: ([^)]+)\)", listing, re.MULTILINE)
    if visible is None:
        return [model for _, model, _ in listed]
    allowed = {name.strip() for name in visible.split(",")}
    return [model for index, model, uuid in listed if index in allowed or uuid in allowed]


def _visible_on_node() -> str | None:
    """Return CUDA_VISIBLE_DEVICES of the raylet, not of this worker's task."""
    try:
        entries = Path("/proc", os.environ["RAY_RAYLET_PID"], "environ").read_bytes().split(b"\0")
    except (KeyError, OSError):
        return None
    for entry in entries:
        name, _, value = entry.partition(b"=")
        if name == b"CUDA_VISIBLE_DEVICES":
            return value.decode()
    return None


def _torch(timeout: float, *, visible: str | None) -> dict[str, Any]:
    """Try torch in another process.

    Torch is large, and may hang in the GPU's driver. `visible`:
    CUDA_VISIBLE_DEVICES of that process. Returns the facts that _TORCH prints;
    {"missing": True} without torch; or {"error": text}.
    """
    if importlib.util.find_spec("torch") is None:
        return {"missing": True}

    environment = dict(os.environ)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    result: dict[str, Any] = _printed("torch", _TORCH, timeout, environment)
    return result


def vulkan(timeout: float, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return {"devices": list} or {"error": text}, both with "capabilities".

    "devices" is what _VULKAN prints. "capabilities" is the environment's
    NVIDIA_DRIVER_CAPABILITIES, None if it is not set.
    """
    found = _printed("Vulkan", _VULKAN, timeout, environ)
    if isinstance(found, list):
        found = {"devices": found}
    return {**found, "capabilities": environ.get("NVIDIA_DRIVER_CAPABILITIES")}


def _printed(what: str, program: str, timeout: float, environ: Mapping[str, str]) -> Any:
    """Run Python code; return the JSON of its last line, or {"error": text}."""
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
        return {"error": (last_line(answer.stderr) or "no output")[:300]}

    return json.loads(last_line(answer.stdout))


def _machine() -> dict[str, Any]:
    """Return the facts that need no other program; unknown ones are None."""
    cpu = _matched(r"^model name\s*: (.+)$", "/proc/cpuinfo")
    packages = {}
    for name in _PACKAGES:
        version = _version(name)
        if version is not None:
            packages[name] = version

    return {
        "cpu": cpu or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory": _memory(),
        "system": _system(),
        "driver": _matched(r"Kernel Module\D*([\d.]+)", "/proc/driver/nvidia/version"),
        "packages": packages,
    }


def _memory() -> int | None:
    """Return the machine's memory in bytes, or its container's lower limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    limit = _matched(r"^(\d+)$", "/sys/fs/cgroup/memory.max")
    if limit is None:
        return total
    return min(total, int(limit))


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
    if found is None:
        return None
    return found[1].strip()
