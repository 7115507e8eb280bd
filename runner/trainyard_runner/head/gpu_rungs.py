"""The smoke test's GPU checks: number, torch, isolation, graphics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard_runner.head.rungs import Answer, with_facts
from trainyard_runner.wire import members
from trainyard_runner.wire.events import Check
from trainyard_runner.wire.plan import Gate

# NVIDIA's GPUs without RT cores, made for computing only.
_COMPUTE_ONLY = re.compile(r"\b(?:[PVAH]100|A30|[AH]800|H20|G?H200|G?B[123]00)\b")
_RT_CORES = (
    "Use nodes with RT cores (L4, L40S, A10, RTX), or train without Kit and `graphics`: "
    "images/isaac-lab."
)
_LOADER = "Vulkan's loader is missing: put it into the image (Debian, Ubuntu: libvulkan1)."
_CAPABILITIES = (
    "Set NVIDIA_DRIVER_CAPABILITIES to `all` under `env:` of the cluster file, and "
    "recreate the nodes."
)
_DRIVER = (
    "The node needs the driver's graphics libraries; in containers "
    "NVIDIA_DRIVER_CAPABILITIES=all mounts them."
)


def gpus(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Compare each node's GPUs in the cluster file, Ray and nvidia-smi."""
    if not any(answer.node.gpus or members.gpus(gate, answer.node) for answer in answers):
        yield _without_gpus(gate)
        return

    for answer, facts in with_facts(answers):
        wanted = members.gpus(gate, answer.node)
        if not wanted and not answer.node.gpus:
            yield Check("gpus", answer.node.name, True, "none declared", skipped=True)
        elif wanted != answer.node.gpus:
            hint = "Repeat `trainyard cluster.up`; the node was started with other resources."
            detail = f"{wanted:g} declared, Ray has {answer.node.gpus:g}"
            yield Check("gpus", answer.node.name, False, detail, hint=hint)
        elif gate.simulated_gpus:
            detail = f"{wanted:g}, simulated; nvidia-smi not asked"
            yield Check("gpus", answer.node.name, True, detail)
        else:
            yield _real_gpus(answer.node.name, facts["nvidia_smi"], wanted)


def _without_gpus(gate: Gate) -> Check:
    if not (gate.needs.get("gpus") or gate.needs.get("graphics")):
        return Check("gpus", None, True, "no GPUs declared", skipped=True)

    hint = (
        "Dispatch to a cluster with GPUs, or remove `gpus` and `graphics` from `smoke:` "
        "in the job file."
    )
    return Check("gpus", None, False, "the job needs GPUs, and no node has any", hint=hint)


def torch(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Check that torch sees as many GPUs as Ray, and computes correctly.

    A node without torch fails only if the job needs torch.
    """
    is_needed = bool(gate.needs.get("torch"))
    for answer, facts in with_facts(answers):
        node = answer.node
        found = facts.get("torch")
        if found is None:
            is_simulated = gate.simulated_gpus and node.gpus
            why = "GPUs are simulated" if is_simulated else "no GPUs on this node"
            yield Check("torch", node.name, True, why, skipped=True)
        elif found.get("missing"):
            yield _torch_is_missing(node.name, is_needed=is_needed)
        elif "error" in found:
            hint = "Driver, CUDA and torch must fit each other; try a newer image."
            yield Check("torch", node.name, False, found["error"], hint=hint)
        elif gate.simulated_gpus or not node.gpus:
            yield Check("torch", node.name, True, f"torch {found['version']}")
        else:
            yield _torch_on_gpus(found, node.name, gpus=node.gpus)


def _torch_is_missing(node: str, *, is_needed: bool) -> Check:
    detail = "not importable on this node"
    if not is_needed:
        return Check("torch", node, True, detail, skipped=True)

    hint = "Put torch into the image, or remove `smoke: {torch: true}` from the job file."
    return Check("torch", node, False, detail, hint=hint)


def _torch_on_gpus(found: Mapping[str, Any], node: str, *, gpus: float) -> Check:
    version = f"torch {found['version']}"
    if found["count"] != gpus:
        detail = f"{version} sees {found['count']} GPUs, Ray {gpus:g}"
        hint = "torch is built for CPU only, or the node's driver is too old."
        return Check("torch", node, False, detail, hint=hint)

    if found["wrong"]:
        detail = f"wrong matrix product on GPU {', '.join(map(str, found['wrong']))}"
        hint = "The GPU is faulty: take it out of the cluster."
        return Check("torch", node, False, detail, hint=hint)

    detail = f"{version}, {found['count']} GPUs, matrix products correct"
    return Check("torch", node, True, detail)


def isolation(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Check on each node that a task with one GPU sees that GPU only.

    A node whose GPUs are all in use is skipped.
    """
    hint = (
        "Nothing may set CUDA_VISIBLE_DEVICES for Ray's workers "
        "(RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES)."
    )

    for answer, facts in with_facts(answers):
        name = answer.node.name
        if answer.node.gpus < 1:
            yield Check("isolation", name, True, "no GPUs on this node", skipped=True)
        elif not answer.isolated:
            yield Check("isolation", name, True, "all GPUs are in use", skipped=True)
        elif len(facts["assigned"]) != 1 or facts["visible"] != facts["assigned"][0]:
            detail = (
                f"a task with GPU {facts['assigned']} sees "
                f"CUDA_VISIBLE_DEVICES={facts['visible']!r}"
            )
            yield Check("isolation", name, False, detail, hint=hint)
        elif (in_torch := facts.get("torch_isolated", {}).get("count", 1)) != 1:
            detail = f"a task with one GPU sees {in_torch} in torch"
            yield Check("isolation", name, False, detail, hint=hint)
        elif (wrong := _not_its_own(answer.each)) is not None:
            yield Check("isolation", name, False, wrong, hint=hint)
        else:
            suffix = " (simulated)" if gate.simulated_gpus else ""
            seen = f"a 1-GPU task sees GPU {facts['visible']} only"
            if answer.each:
                gpus = ", ".join(sorted(str(one["visible"]) for one in answer.each))
                seen = f"{len(answer.each)} concurrent 1-GPU tasks see GPU {gpus}, one each"
            yield Check("isolation", name, True, f"{seen}{suffix}")


def graphics(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Check that Vulkan finds a GPU, if the job needs graphics.

    Nodes without GPUs are skipped. Vulkan may find no GPU although nvidia-smi
    lists some (IsaacSim#357).
    """
    if not gate.needs.get("graphics"):
        return
    for answer, facts in with_facts(answers):
        name = answer.node.name
        if "graphics" not in facts:
            yield Check("graphics", name, True, "no GPUs on this node", skipped=True)
        elif wrong := _no_graphics(facts, simulated=gate.simulated_gpus):
            yield Check("graphics", name, False, wrong[0], hint=wrong[1])
        else:
            devices = [device["name"] for device in facts["graphics"]["devices"]]
            yield Check("graphics", name, True, ", ".join(devices))


def _no_graphics(facts: dict[str, Any], *, simulated: bool) -> tuple[str, str] | None:
    """Return why a node has no graphics, and a hint; None if a device renders.

    A simulated GPU may be a CPU that renders. If any GPU lacks RT cores, the
    node has no graphics.
    """
    found = facts["graphics"]
    devices = found.get("devices", ())
    capabilities = found["capabilities"]

    for model in facts.get("nvidia_smi", {}).get("models", ()):
        if _COMPUTE_ONLY.search(model):
            return f"{model} has no RT cores: Isaac Sim's Kit does not run on it", _RT_CORES

    if "error" in found:
        error = found["error"]
        hint = _LOADER if "libvulkan.so.1" in error else _DRIVER
        return f"Vulkan: {error}", hint
    if any(simulated or not device["cpu"] for device in devices):
        return None

    if devices:
        finds = f"Vulkan finds only a CPU ({devices[0]['name']})"
    else:
        finds = "Vulkan finds no device"

    if capabilities is None or {"graphics", "all"} & set(capabilities.split(",")):
        return finds, _DRIVER

    return f"{finds}: NVIDIA_DRIVER_CAPABILITIES={capabilities} lacks graphics", _CAPABILITIES


def _not_its_own(each: Sequence[dict[str, Any]]) -> str | None:
    """Say which task did not run, or had no GPU for itself alone; else None.

    `each`: what each of a node's tasks saw while all ran at the same time.
    """
    for view in each:
        if problem := view.get("problem"):
            return f"a task with a GPU did not run while the others ran: {problem}"
        assigned = view["assigned"]
        visible = view["visible"]
        if len(assigned) != 1 or visible != assigned[0]:
            return f"a task with GPU {assigned} sees CUDA_VISIBLE_DEVICES={visible!r}"

    seen = sorted(str(view["visible"]) for view in each)
    if len(set(seen)) < len(seen):
        gpus = ", ".join(seen)
        return f"{len(seen)} tasks that run at the same time see GPU {gpus}: a GPU is shared"

    return None


def _real_gpus(name: str, said: dict[str, Any], wanted: float) -> Check:
    if "error" in said:
        hint = (
            "Install the NVIDIA driver and its container toolkit on the node; recreate a container "
            "that lost its GPUs."
        )
        return Check("gpus", name, False, said["error"], hint=hint)

    if said["count"] != wanted:
        hint = "Declare as many GPUs as the node has, or make all of them visible on the node."
        detail = f"{wanted:g} declared, nvidia-smi counts {said['count']}"
        return Check("gpus", name, False, detail, hint=hint)

    return Check("gpus", name, True, f"{wanted:g} declared, and counted by Ray and nvidia-smi")
