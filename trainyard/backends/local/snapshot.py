"""The nodes of a local cluster as processes: which run, what is missing, how they are started and ended."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainyard.backends.local import record
from trainyard.backends.local.desired import Ports, node_environment, ray_start
from trainyard.backends.local.naming import ClusterFiles, private_directory
from trainyard.backends.local.record import NodeRecord
from trainyard.backends.node_steps import Difference
from trainyard.backends.ray_nodes import NodePlan
from trainyard.errors import LeftoverError
from trainyard.seams import processes
from trainyard.seams.processes import ProcessId

# Programs of their own, run by their path.
KEEPER = Path(processes.__file__).with_name("keeper.py")
LAUNCHER = Path(processes.__file__).with_name("ray_launcher.py")
# `ray start` starts it last; without one no task was ever run.
RAYLET = "raylet/raylet"


def compare(plans: Iterable[NodePlan], recorded: Mapping[str, NodeRecord], *, running: frozenset[str]) -> Difference:
    """Compare what should run with what does; a dead node is both surplus and missing.

    No worker outlives its head: when the head does not fit, none does.
    """
    desired = {plan.name: plan for plan in plans}
    as_planned = {
        name
        for name, node in recorded.items()
        if name in running and name in desired and desired[name].as_text() == node.plan
    }
    head = recorded["head"].gcs_port if "head" in as_planned else None
    fitting = {name for name in as_planned if recorded[name].gcs_port == head}
    return Difference(
        missing=tuple(name for name in desired if name not in fitting),
        surplus=tuple(name for name in recorded if name not in fitting),
    )


def running(recorded: Mapping[str, NodeRecord]) -> frozenset[str]:
    return frozenset(name for name, node in recorded.items() if processes.alive(node.process))


def commands(node: NodeRecord) -> list[str]:
    return [processes.command_line(process) for process in processes.members([node.process]) - {node.process}]


def started(recorded: Mapping[str, NodeRecord]) -> dict[str, float]:
    times = {name: processes.started_at(node.process) for name, node in recorded.items()}
    return {name: time for name, time in times.items() if time is not None}


def of_cluster(files: ClusterFiles) -> frozenset[ProcessId]:
    """Return every running process of the cluster, recorded or not."""
    keepers = [node.process for node in record.read_nodes(files).values()]
    return processes.members(keepers, marker=files.marker())


def start(files: ClusterFiles, plan: NodePlan, ports: Ports, *, environ: Mapping[str, str]) -> None:
    """Start a node's keeper, and write it down."""
    temp_dir = files.node_temp(plan.name)
    private_directory(temp_dir)
    # Not resolved: the interpreter of a virtual environment is a link, and its place is what makes it one.
    python = Path(sys.executable)
    environment = node_environment(
        plan, environ, marker=files.marker(plan.name), token_file=files.token, programs=python.parent
    )
    log = files.node_log(plan.name)
    keeper = [str(python), str(KEEPER), str(files.node_record(plan.name)), str(log), str(python), str(LAUNCHER)]
    command = [*keeper, *ray_start(plan, ports, temp_dir=temp_dir)]
    process = processes.start(command, env=environment, log=log, directory=temp_dir)
    record.write_node(files, plan, gcs_port=ports.gcs, process=process)


def end(files: ClusterFiles, names: Iterable[str]) -> None:
    """End some nodes side by side and forget them. Raises LeftoverError with the processes that will not go."""
    recorded = record.read_nodes(files)
    chosen = [recorded[name] for name in names if name in recorded]
    for node in chosen:
        processes.terminate(node.process)
    left: frozenset[ProcessId] = frozenset()
    for node in chosen:
        left |= _end_all([node], files.marker(node.name))
    _refuse_leftovers(left)
    for node in chosen:
        record.forget_node(files, node.name)


def end_cluster(files: ClusterFiles) -> None:
    """End every process of the cluster, recorded or not. Raises LeftoverError."""
    recorded = list(record.read_nodes(files).values())
    for node in recorded:
        processes.terminate(node.process)
    _refuse_leftovers(_end_all(recorded, files.marker()))


def _end_all(recorded: list[NodeRecord], marker: str) -> frozenset[ProcessId]:
    keepers = [node.process for node in recorded]
    # Its keeper needs 3 s for a node; then we do it ourselves.
    return processes.end(lambda: processes.members(keepers, marker=marker), grace=5.0, deadline=5.0)


def _refuse_leftovers(left: frozenset[ProcessId]) -> None:
    if left:
        pids = ", ".join(str(process.pid) for process in sorted(left, key=lambda process: process.pid))
        raise LeftoverError(
            f"{len(left)} processes of the cluster do not end",
            where=f"pids {pids}",
            hint="Repeat the same command; `ps -o pid,stat,wchan,args -p PID` says what one waits for.",
        )
