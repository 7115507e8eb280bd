"""How a local cluster is: which processes run, and what Ray itself says about the nodes; and where it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainyard import versions
from trainyard.backends import contract, ray_nodes
from trainyard.backends.contract import ClusterStatus, NodeStatus, Tools
from trainyard.backends.local import preflight, record, snapshot
from trainyard.backends.local.desired import LOOPBACK
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.local.record import ClusterRecord, NodeRecord
from trainyard.backends.ray_nodes import NO_ANSWER
from trainyard.backends.record import read_token
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.errors import TrainyardError
from trainyard.seams import processes
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.nodes import NodeSpec

NO_DASHBOARD = "the dashboard has ended"
# As they stand in a command line: whoever starts the dashboard, and the dashboard.
_STARTING = ("ray_launcher.py", "dashboard/dashboard.py")


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask every node that the file names, or that was started, how it is."""
    files = ClusterFiles(tools.state)
    cluster, recorded = record.read(files, tools.backend), record.read_nodes(files)
    answering, detail = answer(files, cluster)
    running = snapshot.running(recorded)
    declared = {node.name: node for node in spec.nodes()}
    known: dict[str, NodeSpec | NodeRecord] = {**declared, **recorded}
    nodes = []
    for name, node in known.items():
        state = ray_nodes.node_state(
            exists=name in recorded, runs=name in running, answers=name in answering, desired=name in declared
        )
        why = "it runs, and is not in Ray (yet, or any more)" if state == "starting" else ""
        nodes.append(NodeStatus(name, node.group, LOOPBACK, state, node.cpus, node.gpus, why))
    has_token = cluster is not None and cluster.auth == "token"
    return ClusterStatus(
        name=spec.name,
        backend=tools.backend,
        state=ray_nodes.cluster_state(node.state for node in nodes),
        nodes=tuple(nodes),
        address=cluster.ports.address if cluster else None,
        token_file=files.token if has_token else None,
        simulated_gpus=bool(cluster and cluster.simulated_gpus),
        detail=detail or "; ".join(f"{node.name}: {node.detail}" for node in nodes if node.detail),
        differences=tuple(_differences(spec, tools, recorded)),
        token=read_token(files.token) if has_token else None,
    )


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the endpoint. Raises NotReadyError if the cluster was not made."""
    files = ClusterFiles(tools.state)
    cluster, recorded = record.read(files, tools.backend), record.read_nodes(files)
    running = snapshot.running(recorded)
    if cluster is None or "head" not in running:
        raise contract.not_up(spec.name)
    return Endpoint(
        cluster=spec.name,
        address=cluster.ports.address,
        token=read_token(files.token) if cluster.auth == "token" else None,
        simulated_gpus=cluster.simulated_gpus,
        expected=tuple(ExpectedNode(node.name, node.group, node.cpus, node.gpus) for node in recorded.values()),
        ray_version=versions.RAY,
        down=tuple((name, "its processes have ended") for name in recorded if name not in running),
    )


def answer(files: ClusterFiles, cluster: ClusterRecord | None) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    if cluster is None:
        return frozenset(), ""
    recorded = record.read_nodes(files)
    started = snapshot.started(recorded)
    answering, detail = ray_nodes.answer(cluster.ports.address, read_token(files.token), started=started)
    return answering, NO_DASHBOARD if detail == NO_ANSWER and not _has_dashboard(recorded.get("head")) else detail


def _has_dashboard(head: NodeRecord | None) -> bool:
    """Say whether the dashboard runs or may still be started; of a head that ended something else is to be said."""
    if head is None or not processes.alive(head.process):
        return True
    commands = snapshot.commands(head)
    has_started = any(snapshot.RAYLET in command for command in commands)
    return not has_started or any(part in command for command in commands for part in _STARTING)


def _differences(spec: ClusterSpec, tools: Tools, recorded: Mapping[str, NodeRecord]) -> list[str]:
    """Say in what the nodes are not as the file says."""
    try:
        plans = preflight.node_plans(spec, tools.environ) if recorded else ()
    except TrainyardError as error:
        return [error.what]
    return [
        f"{plan.name}: {change}"
        for plan in plans
        if plan.name in recorded
        for change in ray_nodes.changes(json.loads(recorded[plan.name].plan), plan)
    ]
