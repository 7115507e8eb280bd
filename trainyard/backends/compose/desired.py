"""From a cluster file to the document that Docker Compose gets, and in what a container is not like it; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard import paths, render
from trainyard.backends import ray_nodes
from trainyard.backends.compose import naming
from trainyard.backends.diff import in_words
from trainyard.backends.ray_nodes import NodePlan
from trainyard.seams.docker.containers import Bind, Container
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.units import format_size

GCS_PORT = 6379
DASHBOARD_PORT = 8265
# Where Ray's agent of each node answers (ray/_private/ray_constants.py, DEFAULT_DASHBOARD_AGENT_LISTEN_PORT).
AGENT_PORT = 52365
TOKEN_VARIABLE = "TRAINYARD_TOKEN"  # noqa: S105 (its name, not its value)
TOKEN_FILE = "/run/secrets/trainyard-token"  # noqa: S105


@dataclass(frozen=True)
class Desired:
    """A cluster as it should be. `image` is an exact reference; `token` a fingerprint, None without a token."""

    spec: ClusterSpec
    plans: tuple[NodePlan, ...]
    image: str
    owner: str
    token: str | None


@dataclass(frozen=True)
class Document:
    """What Docker Compose gets, and a fingerprint of each node in it: equal ones mean that nothing has to be done."""

    text: str
    services: Mapping[str, Any]
    fingerprints: Mapping[str, str]


def document(desired: Desired) -> Document:
    """Render the document, each node labelled with its fingerprint."""
    bare = render.parse(_rendered(desired, {}))["services"]
    fingerprints = {name: _fingerprint(json.dumps(service, sort_keys=True), 16) for name, service in bare.items()}
    text = _rendered(desired, fingerprints)
    return Document(text, render.parse(text)["services"], fingerprints)


def token_fingerprint(token: str) -> str:
    """Return what tells tokens apart without giving one away: it is random, so nobody finds it by trying."""
    return _fingerprint(token, 12)


def changes(service: Mapping[str, Any], container: Container, image_env: Mapping[str, str]) -> list[str]:
    """Say what a node of the document has otherwise than its container; `image_env` is what the container's image set.

    Values of variables are not shown: some of them are secrets.
    """
    given = {name: _plain(str(value)) for name, value in service["environment"].items()}
    # What the image set is no variable of ours, unless it was given another value.
    had = {
        name: value for name, value in container.environment.items() if name in given or image_env.get(name) != value
    }
    binds = [_bind(mount) for mount in service["volumes"] if mount["type"] == "bind"]
    # Compose mounts the token itself.
    bound = [bind for bind in container.binds if not bind.target.startswith("/run/secrets/")]
    old = _described(container.entrypoint, container.labels, container.shm_size, bound)
    new = _described(service["entrypoint"], service["labels"], int(service["shm_size"]), binds)
    inside = [port.outside for port in container.ports if port.inside == DASHBOARD_PORT]
    fixed = [port.split(":")[1] for port in service["ports"]]
    if inside and fixed and fixed[0]:
        old["dashboard_port"], new["dashboard_port"] = str(inside[0]), fixed[0]
    found = in_words({**old, "env": had}, {**new, "env": given})
    if container.labels.get(naming.TOKEN) != service["labels"][naming.TOKEN]:
        found.append("its token: the one that was made for it is not known here")
    return found or ["something that Trainyard sets itself: it was made by another version"]


def ray_start(plan: NodePlan) -> list[str]:
    """Return the command of a node's container; the head answers in the cluster's own network only."""
    arguments = ["ray", "start", "--block", *ray_nodes.node_arguments(plan), "--disable-usage-stats"]
    # Any free port: nothing but the head's two has to be known, and no node has a neighbour in its container.
    arguments += ["--min-worker-port=0", "--max-worker-port=0", "--log-color=false"]
    if not plan.is_head:
        return [*arguments, f"--address=head:{GCS_PORT}"]
    dashboard = ["--include-dashboard=true", "--dashboard-host=0.0.0.0", f"--dashboard-port={DASHBOARD_PORT}"]
    return [*arguments, "--head", f"--port={GCS_PORT}", *dashboard, "--no-monitor"]


def _rendered(desired: Desired, fingerprints: Mapping[str, str]) -> str:
    name = desired.spec.name
    values = {
        "project": naming.project(name),
        "outputs": naming.outputs(name),
        "image": desired.image,
        "labels": naming.common(name, desired.owner),
        "secrets": _secrets(desired),
        "volumes": _volumes(desired.spec),
        "nodes": [_node(desired, plan, fingerprints.get(plan.name, "")) for plan in desired.plans],
    }
    template = render.template(paths.shipped("compose"), "cluster.yaml.j2")
    return render.render(template, values, change=render.dollars_doubled)


def _node(desired: Desired, plan: NodePlan, fingerprint: str) -> dict[str, Any]:
    section = desired.spec.compose
    shm_size, object_store = ray_nodes.shared_memory(plan.memory, section.shm_size)
    # An image may ask for every GPU (NVIDIA_VISIBLE_DEVICES=all in its ENV), and a host may grant it by default.
    hidden = {} if plan.gpu_ids else {"NVIDIA_VISIBLE_DEVICES": "void"}
    return {
        "name": plan.name,
        "container": naming.container(desired.spec.name, plan.name),
        "command": ray_start(replace(plan, object_store=object_store)),
        "environment": {**hidden, **dict(plan.env), **ray_nodes.variables(plan, token_file=TOKEN_FILE)},
        "labels": _labels(desired, plan, fingerprint),
        # Its name must be known before anybody looks it up, and no worker may be older than its head.
        "after": [] if plan.is_head else ["head"],
        "ports": [f"127.0.0.1:{section.dashboard_port or ''}:{DASHBOARD_PORT}"] if plan.is_head else [],
        "shm_size": shm_size,
        "deploy": _deploy(plan),
        "health": _health(plan),
    }


def _labels(desired: Desired, plan: NodePlan, fingerprint: str) -> dict[str, str]:
    return {
        **naming.common(desired.spec.name, desired.owner),
        naming.NODE: plan.name,
        naming.GROUP: plan.group,
        naming.CPUS: str(plan.cpus),
        naming.GPUS: str(plan.gpus),
        naming.SIMULATED: "true" if plan.gpu_ids is None else "false",
        naming.IMAGE: desired.image,
        naming.TOKEN: desired.token or "",
        naming.PLAN: fingerprint,
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


def _secrets(desired: Desired) -> dict[str, Any]:
    if desired.token is None:
        return {"mounted": [], "sources": {}}
    # Whoever the image's user is must read it; in the container there is nobody to hide it from.
    mounted = {"source": "token", "target": TOKEN_FILE, "mode": "0444"}
    return {"mounted": [mounted], "sources": {"token": {"environment": TOKEN_VARIABLE}}}


def _volumes(spec: ClusterSpec) -> list[dict[str, Any]]:
    # Otherwise Docker would make a missing directory, owned by root, and a typing error would go unnoticed.
    bind = {"type": "bind", "bind": {"create_host_path": False}}
    mounts = [
        {**bind, "source": mount.source, "target": mount.target, "read_only": mount.read_only}
        for mount in spec.compose.mounts
    ]
    return [{"type": "volume", "source": "outputs", "target": spec.compose.outputs}, *mounts]


def _fingerprint(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _described(
    command: Sequence[str], labels: Mapping[str, str], shm_size: int, binds: Iterable[Bind]
) -> dict[str, Any]:
    """Return a node, or what was made of it, in the words of a cluster file."""
    given = {name: value for name, _, value in (word.partition("=") for word in command if word.startswith("--"))}
    store, memory = given.get("--object-store-memory"), given.get("--memory")
    return {
        "cpus": given.get("--num-cpus"),
        "gpus": given.get("--num-gpus"),
        "memory": format_size(int(memory)) if memory else None,
        "object store": format_size(int(store)) if store else None,
        "shared memory": format_size(shm_size),
        "image": labels.get(naming.IMAGE),
        "simulated GPUs": labels.get(naming.SIMULATED),
        **{f"mount {bind.source} at {bind.target}{' (read only)' * bind.read_only}": True for bind in binds},
    }


def _bind(mount: Mapping[str, Any]) -> Bind:
    return Bind(_plain(mount["source"]), _plain(mount["target"]), bool(mount.get("read_only")))


def _plain(text: str) -> str:
    return text.replace("$$", "$")
