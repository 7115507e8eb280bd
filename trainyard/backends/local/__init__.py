"""Head and workers as Ray processes of this machine, on loopback only.

Each cluster has its own ports, directories and token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainyard.backends.contract import Backend, ClusterStatus, Finding, LogLine, Site, Traits
from trainyard.backends.local import node_processes
from trainyard.backends.local.machine import ThisMachine, gpu_ids
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.shared import ray_nodes
from trainyard.backends.shared.findings import full_disk
from trainyard.backends.shared.single_host import node_steps
from trainyard.endpoint import Endpoint
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted


def gpus_here(spec: ClusterSpec, environ: Mapping[str, str]) -> int | None:
    if spec.local.simulated_gpus:
        return None
    return len(gpu_ids(environ))


def up_steps(spec: ClusterSpec, site: Site) -> list[Step]:
    ray_nodes.refuse_growing_groups(spec)
    return node_steps(ThisMachine(spec, site))


def down_steps(spec: ClusterSpec, site: Site, *, purge: bool) -> list[Step]:
    """Return steps that end the cluster's processes and remove its files."""
    files = ClusterFiles(site.state)
    recorded = node_processes.read(files)
    title = "End what still runs"
    if recorded:
        title = f"End {counted(len(recorded), 'node')}"
    return [
        Step(
            "end-nodes",
            title,
            done=lambda: _nothing_runs(files),
            do=lambda: node_processes.end_cluster(files),
            disruptive=True,
        ),
        Step(
            "remove-files",
            "Remove the token, the logs and the temporary files",
            done=lambda: _no_files(files),
            do=files.remove,
        ),
    ]


def status(spec: ClusterSpec, site: Site) -> ClusterStatus:
    return ThisMachine(spec, site).status()


def diagnose(spec: ClusterSpec, site: Site) -> list[Finding]:
    return [*full_disk(ClusterFiles(site.state).temp.parent.parent)]


def connect(spec: ClusterSpec, site: Site) -> Endpoint:
    machine = ThisMachine(spec, site)
    return replace(machine.endpoint(), lacking=machine.lacking)


def logs(spec: ClusterSpec, site: Site, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    return ThisMachine(spec, site).logs(follow=follow, node=node)


def _nothing_runs(files: ClusterFiles) -> Answer:
    left = node_processes.of_cluster(files)
    if left:
        return no(f"{len(left)} processes run")
    return YES


def _no_files(files: ClusterFiles) -> Answer:
    left = [str(path) for path in (files.state, files.temp) if path.exists()]
    if left:
        return no(f"still there: {', '.join(left)}")
    return YES


BACKEND = Backend(
    traits=Traits(grows=False, gpus_here=gpus_here),
    up_steps=up_steps,
    down_steps=down_steps,
    status=status,
    connect=connect,
    logs=logs,
    diagnose=diagnose,
)
