"""Ray nodes of any backend: their plans, Ray's settings, and living nodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainyard.backends.contract import ClusterState, NodeState
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.ray_api import RayApi
from trainyard.seams.ray_types import Node
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.groups import Head, NodeSpec
from trainyard.spec.ray_nodes import start_options
from trainyard.spec.units import format_size
from trainyard.wording import counted

MEBIBYTE = 1024**2
SMALLEST_OBJECT_STORE = 100 * MEBIBYTE
LARGEST_OBJECT_STORE = 1024 * MEBIBYTE
# /dev/shm is also used by other programs of a node, such as PyTorch's data loaders. Unused shared
# memory costs nothing.
SPARE_SHARED_MEMORY = 512 * MEBIBYTE
# Ray's job supervisor gives a runner this long from SIGTERM to SIGKILL; Ray's default of 3 s is
# too short to bring outputs back (ray/dashboard/modules/job/job_manager.py).
JOB_STOP_SECONDS = 8
# Ray calls a node dead after five refused checks, and only then retries its tasks. Ray's default
# period needs 15 to 20 s for that. A busy node still has 10 s to answer a check
# (ray/common/ray_config_def.h, health_check_*).
HEALTH_CHECK_MS = 1000
# A frozen, paused or hung machine keeps its connections open and refuses no call. Only gRPC's
# keepalive ends such a connection, by default after 300 + 120 s (ray_config_def.h,
# grpc_client_keepalive_*). With these values Ray calls the node dead after 46 s instead of 55 s.
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 15_000
# pip and uv retry network errors themselves. With Ray's default of 3 tries, a wrong package name
# is reported only after 54 s.
RUNTIME_ENV_TRIES = 2
# Ray's own default (ray/scripts/scripts.py).
RAY_CLIENT_PORT = 10001
# Ray gives its dashboard 60 s to start; on 2 cores with a load of 10 it took longer.
DASHBOARD_SECONDS = 150
# A loaded dashboard may be slow, but one request must not delay the polling loop longer than this.
ANSWER_SECONDS = 10.0
# A clock may be corrected by this much while a node starts. A new node joins Ray only a second or
# two after its start.
CLOCK_SECONDS = 0.5


# Fields of a plan that only Ray reads. They are recorded only if they have a value.
_OF_RAY = ("resources", "labels", "ray_start")


@dataclass(frozen=True)
class Capacity:
    """A machine's resources, the default size of its nodes.

    `memory` is in bytes.
    """

    cpus: int
    memory: int
    gpu_ids: tuple[str, ...]


@dataclass(frozen=True)
class NodePlan:
    """The desired state of a node.

    A node is left unchanged if its recorded plan equals this plan. `memory` and
    `object_store` are in bytes. `gpu_ids` are real GPUs; None if they are
    simulated. `others` are settings that only one backend has, by their keys in
    the cluster file.
    """

    name: str
    group: str
    cpus: int
    memory: int
    object_store: int
    gpus: int
    gpu_ids: tuple[str, ...] | None
    auth: str
    env: tuple[tuple[str, str], ...]
    others: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    ray_start: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_head(self) -> bool:
        return self.name == "head"

    def recorded(self) -> dict[str, Any]:
        """Return the plan for the record, with only hashes of variables."""
        fields = asdict(self)
        others = fields.pop("others")
        # A node that an older Trainyard recorded without these keys must show no drift.
        fields = {name: value for name, value in fields.items() if value or name not in _OF_RAY}
        env = {name: fingerprint(value) for name, value in self.env}
        gpu_ids = None
        if self.gpu_ids is not None:
            gpu_ids = list(self.gpu_ids)
        return {**fields, **others, "env": env, "gpu_ids": gpu_ids}


def fingerprint(secret: str) -> str:
    """Return a short hash that shows a secret's change, but not the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()[:12]


def node_plans(
    spec: ClusterSpec, capacity: Capacity, *, may_simulate: bool, machine: str
) -> tuple[NodePlan, ...]:
    """Return the plan of every node.

    Each real GPU goes to one node, in the order of the GPUs' ids. If the
    machine has too few GPUs, all GPUs are simulated; without `may_simulate`
    that raises PrerequisiteError. `machine` names the machine in the message
    ("this machine").
    """
    nodes = spec.nodes()
    gpus = sum(node.gpus for node in nodes)
    simulated = gpus > len(capacity.gpu_ids)
    if simulated and not may_simulate:
        raise PrerequisiteError(
            f"the cluster file wants {counted(gpus, 'GPU')}, {machine} has "
            f"{len(capacity.gpu_ids) or 'none'}",
            where=", ".join(f"{node.name}: {node.gpus}" for node in nodes if node.gpus),
            hint="`nvidia-smi` lists the GPUs. Ask for fewer GPUs, or set "
            f"`{spec.backend}: {{simulated_gpus: true}}` to try the layout without GPUs.",
        )

    plans = []
    taken = 0
    for node in nodes:
        own = None
        if not (simulated and node.gpus):
            own = capacity.gpu_ids[taken : taken + node.gpus]
        plans.append(_node_plan(spec, node, capacity, gpu_ids=own))
        taken += node.gpus

    return tuple(plans)


def changes(made: Mapping[str, Any], desired: Mapping[str, Any]) -> list[str]:
    """Return a recorded plan's differences: "cpus: 1 now, 2 desired"."""
    old = _described(made)
    new = _described(desired)
    found = []
    for name in sorted({**old, **new}):
        if old.get(name) != new.get(name):
            found.append(_change(name, old.get(name), new.get(name)))
    return found


def object_store(memory: int) -> int:
    """Return the bytes of Ray's object store on a node with `memory` bytes."""
    return max(SMALLEST_OBJECT_STORE, min(LARGEST_OBJECT_STORE, memory * 3 // 10))


def shared_memory(memory: int, shm_size: int | None) -> tuple[int, int]:
    """Return the bytes of a container's /dev/shm, and of the object store.

    The object store must be smaller: otherwise Ray puts the store on the disk
    (ray/_private/services.py).
    """
    if shm_size is None:
        return object_store(memory) + SPARE_SHARED_MEMORY, object_store(memory)
    return shm_size, max(SMALLEST_OBJECT_STORE, shm_size * 8 // 10)


def refuse_growing_groups(spec: ClusterSpec) -> None:
    """Raise RequestError if the file asks for groups that grow and shrink."""
    growing = []
    for group in spec.workers:
        if group.grows:
            growing.append(f"{group.name}: {group.least} to {group.most} nodes")
    if growing:
        raise RequestError(
            f"the {spec.backend} backend cannot grow and shrink worker groups",
            where=", ".join(growing),
            hint="One machine does not get larger: give the group a fixed `count`. "
            "Growing needs a backend that can ask for machines (Kubernetes, EC2).",
        )


def start_arguments(
    plan: NodePlan, *, head: str, gcs_port: int, dashboard: tuple[str, int]
) -> list[str]:
    """Return a node's arguments of `ray start`, without those of the file.

    `head` is the host name or address by which workers reach the head.
    `dashboard` is the address and port on which the head's dashboard listens.
    Ray chooses all other ports.
    """
    node_labels = {"ray.io/node-group": plan.group, **plan.labels}
    labels = [f"{key}={value}" for key, value in node_labels.items()]
    arguments = [
        f"--node-name={plan.name}",
        f"--labels={','.join(labels)}",
        f"--num-cpus={plan.cpus}",
        f"--num-gpus={plan.gpus}",
        f"--memory={plan.memory}",
        f"--object-store-memory={plan.object_store}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--disable-usage-stats",
    ]
    if plan.resources:
        arguments.append(f"--resources={json.dumps(dict(plan.resources))}")

    if not plan.is_head:
        return [*arguments, f"--address={head}:{gcs_port}"]

    host, port = dashboard
    return [
        *arguments,
        "--head",
        f"--port={gcs_port}",
        "--include-dashboard=true",
        f"--dashboard-host={host}",
        f"--dashboard-port={port}",
        "--no-monitor",
    ]


def client_port(head: Head) -> int:
    """Return the port of Ray Client's server, which every head runs."""
    return int(start_options(head.ray_start).get("ray-client-server-port") or RAY_CLIENT_PORT)


def own_arguments(parameters: Mapping[str, object]) -> list[str]:
    """Return the file's own arguments of `ray start`.

    If an argument is given twice, Ray uses the last one.
    """
    arguments = []
    for name, value in start_options(parameters).items():
        if value is None:
            arguments.append(f"--{name}")
        else:
            arguments.append(f"--{name}={value}")
    return arguments


def variables(plan: NodePlan, *, token_file: str) -> dict[str, str]:
    """Return a node's environment variables for Ray, token and dashboard."""
    auth = {"RAY_AUTH_MODE": "disabled"}
    if plan.auth == "token":
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token_file}

    # Ray's dashboard needs this to list the free resources of nodes (/nodes?view=summary) on a
    # cluster without an autoscaler.
    autoscaler = {"RAY_enable_autoscaler_v2": "1"}
    return {**auth, **settings(), **autoscaler}


def settings() -> dict[str, str]:
    """Return Ray's environment variables for every node of every backend."""
    return {
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(DASHBOARD_SECONDS),
        "RAY_JOB_STOP_WAIT_TIME_S": str(JOB_STOP_SECONDS),
        "RUNTIME_ENV_RETRY_TIMES": str(RUNTIME_ENV_TRIES),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray Client's proxy forks while gRPC has threads; gRPC's fork handlers then crash the
        # child (ray#63202).
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        # Worker processes start in parallel as soon as tasks wait: a no-op run takes 3.5 s
        # instead of 5.7 s.
        "RAY_enable_worker_prestart": "1",
        # By default Ray's workers have niceness 15, and the tasks inherit it. A command of
        # `ray job submit` has 0.
        "RAY_worker_niceness": "0",
        "RAY_health_check_initial_delay_ms": str(HEALTH_CHECK_MS),
        "RAY_health_check_period_ms": str(HEALTH_CHECK_MS),
        "RAY_grpc_client_keepalive_time_ms": str(KEEPALIVE_MS),
        "RAY_grpc_client_keepalive_timeout_ms": str(KEEPALIVE_TIMEOUT_MS),
    }


def alive(address: str, token: str | None, *, started: Mapping[str, float]) -> frozenset[str]:
    """Ask Ray for the names of its living nodes.

    Raises OutsideError without an answer. `started` has the start time of each
    current node, in Unix seconds of the cluster's machine. An older node is a
    dead predecessor: Ray calls it alive for another 5 to 20 s.
    """
    with RayApi(address, token, answer_seconds=ANSWER_SECONDS) as ray:
        names = set()
        for node in ray.nodes():
            if node.alive and not is_predecessor(node, started):
                names.add(node.name)
        return frozenset(names)


def is_predecessor(node: Node, started: Mapping[str, float]) -> bool:
    return node.started is not None and node.started + CLOCK_SECONDS < started.get(node.name, 0.0)


def cluster_state(nodes: Iterable[NodeState]) -> ClusterState:
    """Return the cluster's state; "absent" without nodes."""
    states = set(nodes)
    if states <= {"absent"}:
        return "absent"
    if states <= {"absent", "broken"}:
        return "broken"
    if states == {"up"}:
        return "up"
    return "partial"


def _node_plan(
    spec: ClusterSpec, node: NodeSpec, capacity: Capacity, *, gpu_ids: tuple[str, ...] | None
) -> NodePlan:
    memory = node.memory or capacity.memory
    cpus = capacity.cpus
    if node.cpus is not None:
        cpus = node.cpus
    return NodePlan(
        name=node.name,
        group=node.group,
        cpus=cpus,
        memory=memory,
        object_store=object_store(memory),
        gpus=node.gpus,
        gpu_ids=gpu_ids,
        auth=spec.auth,
        env=tuple(sorted(spec.env.items())),
        resources=node.resources,
        labels=node.labels,
        ray_start=node.ray_start,
    )


def _change(name: str, old: str | None, new: str | None) -> str:
    if not name.startswith(("env.", "mount ")):
        return f"{name}: {old or 'none'} now, {new or 'none'} desired"
    if new is None:
        return f"{name} is gone"
    if old is None:
        return f"{name} is new"
    return f"{name} differs"


def _described(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return a recorded plan as texts by key."""
    words = {}
    for name, value in plan.items():
        if isinstance(value, int) and value >= MEBIBYTE:
            words[name] = format_size(value)
        elif name not in ("env", *_OF_RAY):
            words[name] = str(value)

    for name in ("env", *_OF_RAY):
        for key, value in plan.get(name, {}).items():
            words[f"{name}.{key}"] = str(value)
    return words
