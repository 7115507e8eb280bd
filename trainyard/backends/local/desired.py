"""From a cluster file to the `ray start` of each node; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.backends import ray_nodes
from trainyard.backends.ray_nodes import NodePlan
from trainyard.seams import processes

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """The two ports that others must know; Ray chooses every other one itself."""

    gcs: int
    dashboard: int

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.dashboard}"


def ray_start(plan: NodePlan, ports: Ports, *, temp_dir: Path) -> list[str]:
    """Return the arguments of `ray start` for a node; 0 lets Ray choose a free port."""
    arguments = [
        "start",
        f"--temp-dir={temp_dir}",
        *ray_nodes.node_arguments(plan),
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
    desired = {**kept, **dict(plan.env)}
    return {
        **desired,
        **ray_nodes.variables(plan, token_file=str(token_file)),
        processes.MARKER: marker,
        "PATH": f"{programs}:{desired.get('PATH', '/usr/bin:/bin')}",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
