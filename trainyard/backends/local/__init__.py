"""Head and workers as real Ray processes of this machine: own ports, own directories, own token, loopback only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard import versions
from trainyard.backends import contract
from trainyard.backends.contract import ClusterStatus, Discovered, LogLine, NodeStatus, Tools, Traits
from trainyard.backends.local import log_files, nodes, records, view
from trainyard.backends.local.layout import LOOPBACK
from trainyard.backends.local.records import ClusterFiles
from trainyard.backends.local.up import up_steps
from trainyard.backends.ray_nodes import cluster_state, node_state
from trainyard.backends.wording import counted
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.errors import NotReadyError
from trainyard.images.verified import Verified
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

__all__ = ["connect", "documents", "down_steps", "logs", "status", "up_steps"]

TRAITS = Traits()


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Step]:
    """Return the steps that end every process and remove every file of the cluster."""
    if purge:
        raise contract.nothing_to_purge("local", "`cluster.down` removes everything that was made on this machine.")
    files = ClusterFiles(tools.state)
    recorded = records.read_nodes(files)
    return [
        Step(
            f"End {counted(len(recorded), 'node')}" if recorded else "End what still runs",
            done=lambda: _nothing_runs(files),
            do=lambda: nodes.end_cluster(files),
            disruptive=True,
        ),
        Step(
            "Remove the token, the logs and the temporary files",
            done=lambda: _no_files(files),
            do=lambda: records.forget_cluster(files),
        ),
    ]


def documents(spec: ClusterSpec, tools: Tools) -> list[dict[str, Any]]:
    """Return none: nobody is given a document to make processes from."""
    return []


def verify(spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]) -> Verified:
    """Raise RequestError: its nodes are no containers of ours."""
    raise contract.no_images(spec)


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask every node that the file names, or that was started, how it is."""
    files = ClusterFiles(tools.state)
    record = records.read_cluster(files)
    recorded = records.read_nodes(files)
    answering, seen = view.answering(files, record)
    keepers = nodes.running(recorded)
    wanted = {node.name: node for node in spec.nodes()}
    found: list[NodeStatus] = []
    for name in [*wanted, *(name for name in recorded if name not in wanted)]:
        state = node_state(
            exists=name in recorded, runs=name in keepers, answers=name in answering, desired=name in wanted
        )
        group = wanted[name].group if name in wanted else recorded[name].group
        cpus = recorded[name].cpus if name in recorded else wanted[name].cpus
        gpus = recorded[name].gpus if name in recorded else wanted[name].gpus
        why = "it runs, and is not in Ray (yet, or any more)" if state == "starting" else ""
        found.append(NodeStatus(name, group, LOOPBACK, state, cpus, gpus, detail=why))
    return ClusterStatus(
        name=spec.name,
        backend="local",
        state=cluster_state(node.state for node in found),
        nodes=tuple(found),
        address=view.address(record.ports) if record else None,
        token_file=files.token if record and record.auth == "token" else None,
        simulated_gpus=bool(record and record.simulated_gpus),
        detail=seen or "; ".join(f"{node.name}: {node.detail}" for node in found if node.detail),
        token=records.read_token(files) if record and record.auth == "token" else None,
    )


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the way in. Raises NotReadyError if the cluster was not made."""
    files = ClusterFiles(tools.state)
    record = records.read_cluster(files)
    recorded = records.read_nodes(files)
    alive = nodes.running(recorded)
    if record is None or "head" not in alive:
        raise NotReadyError(f"cluster {spec.name} is not up", hint="Make it: invoke cluster.up")
    return Endpoint(
        cluster=spec.name,
        address=view.address(record.ports),
        token=records.read_token(files) if record.auth == "token" else None,
        simulated_gpus=record.simulated_gpus,
        expected=tuple(ExpectedNode(one.name, one.group, one.cpus, one.gpus) for one in recorded.values()),
        ray_version=versions.RAY,
        down=tuple((name, "its processes have ended") for name in recorded if name not in alive),
    )


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return the lines of the nodes' log files, from their ends on."""
    files = ClusterFiles(tools.state)
    if not records.read_nodes(files):
        raise NotReadyError(f"cluster {spec.name} is not up", hint="Make it: invoke cluster.up")
    return log_files.lines(files, follow=follow)


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]], states: Sequence[Path], environ: Mapping[str, str]
) -> Discovered:
    """Find nothing: what is written down here is all that leads to such a cluster."""
    return Discovered()


def _nothing_runs(files: ClusterFiles) -> Answer:
    left = nodes.of_cluster(files)
    return no(f"{len(left)} processes run") if left else YES


def _no_files(files: ClusterFiles) -> Answer:
    left = [str(path) for path in (files.state, files.temp) if path.exists()]
    return no(f"still there: {', '.join(left)}") if left else YES
