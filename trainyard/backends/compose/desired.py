"""Convert a cluster file to Docker Compose's document; pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard import paths, render
from trainyard.backends.compose import naming
from trainyard.backends.shared import ray_nodes
from trainyard.backends.shared.ray_nodes import NodePlan
from trainyard.seams.docker.containers import HARDENED
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import ComposeSection
from trainyard.spec.units import format_size

GCS_PORT = 6379
DASHBOARD_PORT = 8265
# The port of Ray's agent on each node (ray/_private/ray_constants.py,
# DEFAULT_DASHBOARD_AGENT_LISTEN_PORT).
AGENT_PORT = 52365
TOKEN_VARIABLE = "TRAINYARD_TOKEN"  # noqa: S105 (a variable's name, not the token)
TOKEN_FILE = "/run/secrets/trainyard-token"  # noqa: S105


def in_a_container(plan: NodePlan, spec: ClusterSpec) -> NodePlan:
    """Add this backend's settings to a plan."""
    section = spec.compose
    shm_size, object_store = ray_nodes.shared_memory(plan.memory, section.shm_size)
    mounts = {}
    for mount in section.mounts:
        name = f"mount {mount.source} at {mount.target}"
        if mount.read_only:
            name += " (read only)"
        mounts[name] = "yes"

    others = {
        "shared memory": format_size(shm_size),
        "outputs": section.outputs,
        **mounts,
        **_unusual(section),
    }
    if plan.is_head:
        others["dashboard_port"] = str(section.dashboard_port or "any")

    return replace(plan, object_store=object_store, others=others)


def _unusual(section: ComposeSection) -> dict[str, str]:
    """Return the settings that differ from their defaults.

    An older Trainyard recorded nodes without these keys. Such a node must show
    no drift.
    """
    settings = {}
    if section.limits:
        settings["limits"] = "yes"
    if not section.hardened:
        settings["hardened"] = "no"
    if section.logging:
        settings["logging"] = section.logging.model_dump_json()
    return settings


def document(
    spec: ClusterSpec,
    plans: Sequence[NodePlan],
    owner: str,
    *,
    logging: Mapping[str, Any],
    of_root: Collection[str],
) -> str:
    """Render Docker Compose's document.

    Each node's plan is in a label, so that later commands find drift. `logging`
    is the default log driver. `of_root` has the images whose user is root.
    """
    security: list[str] = []
    if spec.compose.hardened:
        security += HARDENED
    if spec.compose.logging:
        logging = spec.compose.logging.model_dump()

    values = {
        "project": naming.project(spec.name),
        "outputs": naming.outputs(spec.name),
        "labels": naming.common(spec.name, owner),
        "secrets": _secrets(spec),
        "volumes": _volumes(spec),
        "logging": logging,
        "security": security,
        "nodes": [_node(spec, plan, owner, of_root) for plan in plans],
    }
    template = (paths.shipped("compose") / "cluster.yaml.j2").read_text(encoding="utf-8")
    return render.render(template, values, change=render.dollars_doubled)


def ray_start(plan: NodePlan) -> list[str]:
    """Return the command of a node's container.

    The dashboard listens on all of the container's addresses. Only the
    cluster's network reaches them.
    """
    dashboard = ("0.0.0.0", DASHBOARD_PORT)  # noqa: S104
    arguments = ray_nodes.start_arguments(plan, head="head", gcs_port=GCS_PORT, dashboard=dashboard)
    return [
        "ray",
        "start",
        "--block",
        *arguments,
        "--log-color=false",
        *ray_nodes.own_arguments(plan.ray_start),
    ]


def _node(
    spec: ClusterSpec, plan: NodePlan, owner: str, of_root: Collection[str]
) -> dict[str, Any]:
    # A node without GPUs must see none: an image may set NVIDIA_VISIBLE_DEVICES=all, which a host
    # may grant by default.
    hidden = {}
    if not plan.gpu_ids:
        hidden = {"NVIDIA_VISIBLE_DEVICES": "void"}

    # A user other than root has no capabilities, and must not gain any. Root needs Docker's
    # defaults to read other users' files.
    dropped = []
    if spec.compose.hardened and plan.others["image"] not in of_root:
        dropped = ["ALL"]

    # Workers start after the head: they resolve its name, and an older worker would belong to a
    # former head.
    after = ["head"]
    ports = []
    if plan.is_head:
        after = []
        ports = _published(spec)

    shm_size, _ = ray_nodes.shared_memory(plan.memory, spec.compose.shm_size)
    made_from = {naming.NODE: plan.name, naming.PLAN: json.dumps(plan.recorded(), sort_keys=True)}
    return {
        "name": plan.name,
        "container": naming.container(spec.name, plan.name),
        "image": plan.others["image"],
        "cap_drop": dropped,
        "command": ray_start(plan),
        "environment": {
            **hidden,
            **dict(plan.env),
            **ray_nodes.variables(plan, token_file=TOKEN_FILE),
        },
        "labels": {**naming.common(spec.name, owner), **made_from},
        "after": after,
        "ports": ports,
        "shm_size": shm_size,
        "deploy": _deploy(spec, plan),
        "health": _health(plan),
    }


def _published(spec: ClusterSpec) -> list[str]:
    dashboard = f"127.0.0.1:{spec.compose.dashboard_port or ''}:{DASHBOARD_PORT}"
    return [dashboard, f"127.0.0.1::{ray_nodes.client_port(spec.head)}"]


def _deploy(spec: ClusterSpec, plan: NodePlan) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if plan.gpu_ids:
        request = {"driver": "nvidia", "device_ids": list(plan.gpu_ids), "capabilities": ["gpu"]}
        resources["reservations"] = {"devices": [request]}
    if spec.compose.limits:
        resources["limits"] = _limits(spec, plan)
    if resources:
        return {"resources": resources}
    return {}


def _limits(spec: ClusterSpec, plan: NodePlan) -> dict[str, str]:
    shm_size, _ = ray_nodes.shared_memory(plan.memory, spec.compose.shm_size)
    # /dev/shm counts as memory of its container.
    limits = {"memory": f"{plan.memory + shm_size}b"}
    # A node with `cpus: 0` gets no tasks, but Ray itself needs CPUs, so the node has no CPU limit.
    if plan.cpus:
        return {**limits, "cpus": str(plan.cpus)}
    return limits


def _health(plan: NodePlan) -> list[str]:
    """Return a node's health check, in bash.

    Python every 10 s would cost more than idle Ray.
    """
    port = AGENT_PORT
    path = "/api/local_raylet_healthz"
    if plan.is_head:
        port = DASHBOARD_PORT
        path = "/api/gcs_healthz"
    ask = (
        f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && "
        "grep -q success <&3"
    )
    return ["CMD", "bash", "-c", ask]


def _secrets(spec: ClusterSpec) -> dict[str, Any]:
    if spec.auth == "none":
        return {"mounted": [], "sources": {}}
    # The image's user is unknown and must be able to read the token, so every user of the container
    # may read it.
    mounted = {"source": "token", "target": TOKEN_FILE, "mode": "0444"}
    return {"mounted": [mounted], "sources": {"token": {"environment": TOKEN_VARIABLE}}}


def _volumes(spec: ClusterSpec) -> list[dict[str, Any]]:
    # By default Docker makes a missing directory, so that a typing error would stay unnoticed.
    bind = {"type": "bind", "bind": {"create_host_path": False}}
    mounts = []
    for mount in spec.compose.mounts:
        mounts.append(
            {**bind, "source": mount.source, "target": mount.target, "read_only": mount.read_only}
        )
    return [{"type": "volume", "source": "outputs", "target": spec.compose.outputs}, *mounts]
