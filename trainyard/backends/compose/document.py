"""From a cluster file to the document that Docker Compose gets; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard import render
from trainyard.backends import ray_nodes
from trainyard.backends.compose import labels
from trainyard.backends.ray_nodes import NodePlan, shared_memory
from trainyard.spec.cluster import ClusterSpec

GCS_PORT = 6379
DASHBOARD_PORT = 8265
# Where Ray's agent of each node answers (ray/_private/ray_constants.py, DEFAULT_DASHBOARD_AGENT_LISTEN_PORT).
AGENT_PORT = 52365
TOKEN_VARIABLE = "TRAINYARD_TOKEN"  # noqa: S105 (its name, not its value)
TOKEN_FILE = "/run/secrets/trainyard-token"  # noqa: S105


@dataclass(frozen=True)
class Wish:
    """All that the document is made of. `image` is an exact reference; `token` a fingerprint, None without a token."""

    spec: ClusterSpec
    plans: tuple[NodePlan, ...]
    image: str
    owner: str
    token: str | None
    simulated: bool


@dataclass(frozen=True)
class Document:
    """What Docker Compose gets, and a fingerprint of each node in it: equal ones mean that nothing has to be done."""

    text: str
    fingerprints: Mapping[str, str]


def document(wish: Wish, template: str) -> Document:
    """Render the document, each node labelled with its fingerprint."""
    bare = render.parse(_rendered(wish, template, {}))["services"]
    fingerprints = {name: _fingerprint(service) for name, service in bare.items()}
    text = _rendered(wish, template, fingerprints)
    render.parse(text)
    return Document(text, fingerprints)


def token_fingerprint(token: str) -> str:
    """Return what tells tokens apart without giving one away: it is random, so nobody finds it by trying."""
    return hashlib.sha256(token.encode()).hexdigest()[:12]


def ray_start(plan: NodePlan) -> list[str]:
    """Return the command of a node's container; the head answers in the cluster's own network only."""
    arguments = ["ray", "start", "--block", *ray_nodes.node_arguments(plan), "--disable-usage-stats"]
    # Any free port: nothing but the head's two has to be known, and no node has a neighbour in its container.
    arguments += ["--min-worker-port=0", "--max-worker-port=0", "--log-color=false"]
    if not plan.is_head:
        return [*arguments, f"--address=head:{GCS_PORT}"]
    dashboard = ["--include-dashboard=true", "--dashboard-host=0.0.0.0", f"--dashboard-port={DASHBOARD_PORT}"]
    return [*arguments, "--head", f"--port={GCS_PORT}", *dashboard, "--no-monitor"]


def _rendered(wish: Wish, template: str, fingerprints: Mapping[str, str]) -> str:
    name = wish.spec.name
    values = {
        "project": labels.project(name),
        "outputs": labels.outputs(name),
        "image": wish.image,
        "labels": labels.common(name, wish.owner),
        "secrets": _secrets(wish),
        "volumes": _volumes(wish.spec),
        "nodes": [_node(wish, plan, fingerprints.get(plan.name, "")) for plan in wish.plans],
    }
    return render.render(template, values, change=render.dollars_doubled)


def _node(wish: Wish, plan: NodePlan, fingerprint: str) -> dict[str, Any]:
    section = wish.spec.compose
    shm_size, object_store = shared_memory(plan.memory, section.shm_size)
    sized = NodePlan(**{**vars(plan), "object_store": object_store})
    return {
        "name": plan.name,
        "container": labels.container(wish.spec.name, plan.name),
        "command": ray_start(sized),
        "environment": _environment(plan),
        "labels": _labels(wish, plan, fingerprint),
        # Its name must be known before anybody looks it up, and no worker may be older than its head.
        "after": [] if plan.is_head else ["head"],
        "ports": [f"127.0.0.1:{section.dashboard_port or ''}:{DASHBOARD_PORT}"] if plan.is_head else [],
        "shm_size": shm_size,
        "deploy": _deploy(plan),
        "health": _health(plan),
    }


def _environment(plan: NodePlan) -> dict[str, str]:
    # An image may ask for every GPU (NVIDIA_VISIBLE_DEVICES=all in its ENV), and a host may grant it by default.
    hidden = {} if plan.gpu_ids else {"NVIDIA_VISIBLE_DEVICES": "void"}
    return {**hidden, **dict(plan.env), **ray_nodes.variables(plan, token_file=TOKEN_FILE)}


def _labels(wish: Wish, plan: NodePlan, fingerprint: str) -> dict[str, str]:
    return {
        **labels.common(wish.spec.name, wish.owner),
        labels.NODE: plan.name,
        labels.GROUP: plan.group,
        labels.CPUS: str(plan.cpus),
        labels.GPUS: str(plan.gpus),
        labels.SIMULATED: "true" if wish.simulated else "false",
        labels.IMAGE: wish.image,
        labels.TOKEN: wish.token or "",
        labels.PLAN: fingerprint,
    }


def _deploy(plan: NodePlan) -> dict[str, Any]:
    if not plan.gpu_ids:
        return {}
    request = {"driver": "nvidia", "device_ids": list(plan.gpu_ids), "capabilities": ["gpu"]}
    return {"resources": {"reservations": {"devices": [request]}}}


def _health(plan: NodePlan) -> list[str]:
    """Return the check of a node: bash alone, since starting a Python every 10 s costs more than an idle node."""
    port, path = (DASHBOARD_PORT, "/api/gcs_healthz") if plan.is_head else (AGENT_PORT, "/api/local_raylet_healthz")
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q success <&3"
    return ["CMD", "bash", "-c", ask]


def _secrets(wish: Wish) -> dict[str, Any]:
    if wish.token is None:
        return {"mounted": [], "sources": {}}
    # Whoever the image's user is must read it; in the container there is nobody to hide it from.
    mounted = {"source": "token", "target": TOKEN_FILE, "mode": "0444"}
    return {"mounted": [mounted], "sources": {"token": {"environment": TOKEN_VARIABLE}}}


def _volumes(spec: ClusterSpec) -> list[dict[str, Any]]:
    mounts = [
        {
            "type": "bind",
            "source": mount.source,
            "target": mount.target,
            "read_only": mount.read_only,
            # Otherwise Docker would make a missing directory, owned by root, and a typing error would go unnoticed.
            "bind": {"create_host_path": False},
        }
        for mount in spec.compose.mounts
    ]
    return [{"type": "volume", "source": "outputs", "target": spec.compose.outputs}, *mounts]


def _fingerprint(service: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(service, sort_keys=True).encode()).hexdigest()[:16]
