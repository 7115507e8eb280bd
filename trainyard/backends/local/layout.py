"""From a cluster file to the `ray start` of each node; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from trainyard.errors import PrerequisiteError
from trainyard.seams import processes
from trainyard.spec.cluster import ClusterSpec, NodeSpec

LOOPBACK = "127.0.0.1"
# Ray's job supervisor gives a runner this long from SIGTERM to SIGKILL; its default of 3 s is too short to bring
# outputs back (ray/dashboard/modules/job/job_manager.py).
JOB_STOP_SECONDS = 8
# How long an uploaded package stays in the cluster (ray/_private/runtime_env/packaging.py; default 10 minutes).
PACKAGE_SECONDS = 7 * 24 * 3600
# Five refused checks make a node dead, and only then are its tasks tried again; Ray's default takes 15 to 20 s. A check
# that a busy node does not answer still counts only after 10 s (ray/common/ray_config_def.h, health_check_*).
HEALTH_CHECK_MS = 1000
# Ray gives its dashboard 60 s; on 2 cores with a load of 10 it was seen to take longer.
DASHBOARD_SECONDS = 150
MEBIBYTE = 1024**2
SMALLEST_OBJECT_STORE = 100 * MEBIBYTE
LARGEST_OBJECT_STORE = 1024 * MEBIBYTE


@dataclass(frozen=True)
class NodePlan:
    """A node as it should run. Two equal plans mean that nothing has to be done.

    `gpu_ids` are the real GPUs it gets; None if its GPUs are simulated.
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

    @property
    def is_head(self) -> bool:
        """Say whether this node holds the GCS and the dashboard."""
        return self.name == "head"

    def as_text(self) -> str:
        """Return the plan as it is recorded, to be compared with another one."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Ports:
    """The two ports that others must know; Ray chooses every other one itself."""

    gcs: int
    dashboard: int


def node_plans(spec: ClusterSpec, *, cpus: int, memory: int, gpu_ids: tuple[str, ...]) -> tuple[NodePlan, ...]:
    """Return the plan of every node, given what this machine has.

    A node that does not say how much it wants may use the whole machine, as `ray start` would have it.
    Raises PrerequisiteError when nodes want more GPUs than there are and may not simulate them.
    """
    nodes = spec.nodes()
    simulated = simulates_gpus(spec, gpu_ids)
    wanted = sum(node.gpus for node in nodes)
    if wanted > len(gpu_ids) and not simulated:
        raise PrerequisiteError(
            f"the cluster file wants {_counted(wanted, 'GPU')}, this machine has {len(gpu_ids) or 'none'}",
            where=", ".join(f"{node.name}: {node.gpus}" for node in nodes if node.gpus),
            hint="Want fewer, or write `local: {simulated_gpus: true}` to try the layout without them.",
        )
    plans = []
    taken = 0
    for node in nodes:
        own = None if simulated else gpu_ids[taken : taken + node.gpus]
        plans.append(_node_plan(spec, node, cpus=cpus, memory=memory, gpu_ids=own))
        taken += node.gpus
    return tuple(plans)


def simulates_gpus(spec: ClusterSpec, gpu_ids: tuple[str, ...]) -> bool:
    """Say whether the declared GPUs are only numbers: allowed by the file, and more than there are."""
    return spec.local.simulated_gpus and sum(node.gpus for node in spec.nodes()) > len(gpu_ids)


def ray_start(plan: NodePlan, ports: Ports, *, temp_dir: Path) -> list[str]:
    """Return the arguments of `ray start` for a node; 0 lets Ray choose a free port."""
    arguments = [
        "start",
        f"--temp-dir={temp_dir}",
        f"--node-name={plan.name}",
        f"--labels=ray.io/node-group={plan.group}",
        f"--num-cpus={plan.cpus}",
        f"--num-gpus={plan.gpus}",
        f"--memory={plan.memory}",
        f"--object-store-memory={plan.object_store}",
        "--node-manager-port=0",
        "--object-manager-port=0",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--dashboard-agent-listen-port=0",
        "--disable-usage-stats",
    ]
    if not plan.is_head:
        return [*arguments, f"--address={LOOPBACK}:{ports.gcs}"]
    return [
        *arguments,
        "--head",
        f"--node-ip-address={LOOPBACK}",
        f"--port={ports.gcs}",
        "--include-dashboard=true",
        f"--dashboard-host={LOOPBACK}",
        f"--dashboard-port={ports.dashboard}",
        "--no-monitor",
    ]


def node_environment(
    plan: NodePlan, environ: Mapping[str, str], *, marker: str, token_file: Path, programs: Path
) -> dict[str, str]:
    """Return the environment of a node: the caller's without its Ray settings, the file's, and what we need."""
    kept = {key: value for key, value in environ.items() if not key.startswith(("RAY_", "TRAINYARD_"))}
    if plan.gpu_ids is None:
        # Ray refuses --num-gpus above what CUDA_VISIBLE_DEVICES lists.
        kept.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        kept["CUDA_VISIBLE_DEVICES"] = ",".join(plan.gpu_ids)
    auth = {"RAY_AUTH_MODE": "disabled"}
    if plan.auth == "token":
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file)}
    wanted = {**kept, **dict(plan.env)}
    return {
        **wanted,
        **auth,
        processes.MARKER: marker,
        "PATH": f"{programs}:{wanted.get('PATH', '/usr/bin:/bin')}",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(DASHBOARD_SECONDS),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_JOB_STOP_WAIT_TIME_S": str(JOB_STOP_SECONDS),
        "RAY_RUNTIME_ENV_URI_PIN_EXPIRATION_S": str(PACKAGE_SECONDS),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Workers start as soon as tasks wait, side by side: a no-op run takes 3.5 s instead of 5.7 s.
        "RAY_enable_worker_prestart": "1",
        "RAY_health_check_initial_delay_ms": str(HEALTH_CHECK_MS),
        "RAY_health_check_period_ms": str(HEALTH_CHECK_MS),
    }


def _node_plan(
    spec: ClusterSpec, node: NodeSpec, *, cpus: int, memory: int, gpu_ids: tuple[str, ...] | None
) -> NodePlan:
    own_memory = node.memory or memory
    return NodePlan(
        name=node.name,
        group=node.group,
        cpus=cpus if node.cpus is None else node.cpus,
        memory=own_memory,
        object_store=max(SMALLEST_OBJECT_STORE, min(LARGEST_OBJECT_STORE, own_memory * 3 // 10)),
        gpus=node.gpus,
        gpu_ids=gpu_ids,
        auth=spec.auth,
        env=tuple(sorted(spec.env.items())),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
