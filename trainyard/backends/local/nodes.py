"""Start nodes, end nodes, and say why one ended by itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainyard.backends.local import records
from trainyard.backends.local.layout import NodePlan, Ports, node_environment, ray_start
from trainyard.backends.local.records import ClusterFiles, NodeRecord
from trainyard.errors import LeftoverError, NotReadyError, OutsideError
from trainyard.seams import processes

# Programs of their own, run by their path; DIED and GAVE_UP begin lines that the keeper prints.
DIED = "keeper: ended while the node was starting: "
GAVE_UP = "keeper: this machine is too busy for Ray's own time limits"
KEEPER = Path(processes.__file__).with_name("keeper.py")
LAUNCHER = Path(processes.__file__).with_name("ray_launcher.py")
TAIL_LINES = 6
# "/path/gcs_server(+0x3609c4) [0x55c3d16d29c4] ray::gcs::GcsServer::GetStorageType()"
_STACK_FRAME = re.compile(r"\[0x[0-9a-f]+\]|\*\*\* StackTrace")


@dataclass(frozen=True)
class Difference:
    """What has to be done about the nodes, so that they are as planned."""

    missing: tuple[NodePlan, ...]
    unwanted: tuple[str, ...]


def compare(plans: Iterable[NodePlan], recorded: Mapping[str, NodeRecord], *, running: frozenset[str]) -> Difference:
    """Compare what should run with what does; a dead node is both unwanted and missing.

    No worker outlives its head: when the head does not fit, none does.
    """
    wanted = {plan.name: plan for plan in plans}
    as_planned = {
        name
        for name, record in recorded.items()
        if name in running and name in wanted and wanted[name].as_text() == record.plan
    }
    head = recorded["head"].gcs_port if "head" in as_planned else None
    fitting = {name for name in as_planned if recorded[name].gcs_port == head}
    return Difference(
        missing=tuple(plan for name, plan in wanted.items() if name not in fitting),
        unwanted=tuple(name for name in recorded if name not in fitting),
    )


def running(recorded: Mapping[str, NodeRecord]) -> frozenset[str]:
    """Return the names of the nodes whose keeper runs."""
    return frozenset(name for name, record in recorded.items() if processes.alive(record.process))


def start(files: ClusterFiles, plan: NodePlan, ports: Ports, *, environ: Mapping[str, str]) -> None:
    """Start a node's keeper, and write it down."""
    temp_dir = files.node_temp(plan.name)
    records.private_directory(temp_dir)
    # Not resolved: the interpreter of a virtual environment is a link, and its place is what makes it one.
    python = Path(sys.executable)
    environment = node_environment(
        plan, environ, marker=files.marker(plan.name), token_file=files.token, programs=python.parent
    )
    record, log = files.node_record(plan.name), files.node_log(plan.name)
    command = [str(python), str(KEEPER), str(record), str(log), str(python), str(LAUNCHER)]
    process = processes.start(
        [*command, *ray_start(plan, ports, temp_dir=temp_dir)],
        env=environment,
        log=log,
        directory=temp_dir,
    )
    records.write_node(files, plan, gcs_port=ports.gcs, process=process)


def end(files: ClusterFiles, names: Iterable[str]) -> None:
    """End some nodes side by side and forget them. Raises LeftoverError with the processes that will not go."""
    recorded = records.read_nodes(files)
    chosen = [recorded[name] for name in names if name in recorded]
    for record in chosen:
        processes.terminate(record.process)
    left: frozenset[processes.ProcessId] = frozenset()
    for record in chosen:
        left |= _end_all([record], files.marker(record.name))
    refuse_leftovers(left)
    for record in chosen:
        records.forget_node(files, record.name)


def end_cluster(files: ClusterFiles) -> None:
    """End every process of the cluster, recorded or not. Raises LeftoverError."""
    recorded = list(records.read_nodes(files).values())
    for record in recorded:
        processes.terminate(record.process)
    refuse_leftovers(_end_all(recorded, files.marker()))


def of_cluster(files: ClusterFiles) -> frozenset[processes.ProcessId]:
    """Return every running process of the cluster, recorded or not."""
    keepers = [record.process for record in records.read_nodes(files).values()]
    return processes.members(keepers, marker=files.marker())


def refuse_dead(files: ClusterFiles) -> None:
    """Raise the cause, if a node ended by itself; the head's first, since it takes others along.

    Raises NotReadyError when the machine was only too busy, else OutsideError.
    """
    recorded = records.read_nodes(files)
    alive = running(recorded)
    for name in recorded:
        if name not in alive:
            _raise_cause(files, name)


def _raise_cause(files: ClusterFiles, name: str) -> NoReturn:
    path, said = last_words(files, name)
    if said[-1].startswith(GAVE_UP):
        raise NotReadyError(
            f"{name} did not start in several tries: this machine is too busy for Ray's own time limits",
            where=str(path),
            hint="Repeat the same command when it is less busy (`uptime`), or want fewer nodes.",
        )
    raise OutsideError(
        f"{name} ended while it was starting; its last words:\n" + "\n".join(f"    {line}" for line in said),
        where=str(path),
        hint="Repeat the same command once the cause is gone: it replaces this node.",
    )


def last_words(files: ClusterFiles, name: str) -> tuple[Path, list[str]]:
    """Return the last lines of what a node said, and where: of the daemon that ended, or else of `ray start`."""
    started = _lines(files.node_log(name))
    if started and started[-1].startswith(GAVE_UP):
        return files.node_log(name), started[-1:]
    died = [line.removeprefix(DIED) for line in started if line.startswith(DIED)][-1:]
    daemons = died or (["gcs_server", "raylet"] if any("Ray runtime started" in line for line in started) else [])
    logs = files.node_temp(name) / "session_latest" / "logs"
    for path in (logs / f"{daemon}{ending}" for daemon in daemons for ending in (".err", ".out")):
        if said := _lines(path):
            return path, said[-TAIL_LINES:]
    return files.node_log(name), started[-TAIL_LINES:] or ["(it said nothing)"]


def _end_all(recorded: list[NodeRecord], marker: str) -> frozenset[processes.ProcessId]:
    keepers = [record.process for record in recorded]
    # Its keeper needs 3 s for a node; then we do it ourselves.
    return processes.end(lambda: processes.members(keepers, marker=marker), grace=5.0, deadline=5.0)


def refuse_leftovers(left: frozenset[processes.ProcessId]) -> None:
    """Raise LeftoverError if there are any."""
    if left:
        pids = ", ".join(str(process.pid) for process in sorted(left, key=lambda process: process.pid))
        raise LeftoverError(
            f"{len(left)} processes of the cluster do not end",
            where=f"pids {pids}",
            hint="Repeat the same command; `ps -o pid,stat,wchan,args -p PID` says what one waits for.",
        )


def _lines(path: Path) -> list[str]:
    """Return the lines of a log that say something: not the frames of a C++ stack, which follow the reason."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip() and not _STACK_FRAME.search(line)]
