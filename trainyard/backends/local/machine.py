"""This machine as the host of a cluster's nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from trainyard import versions
from trainyard.backends import contract
from trainyard.backends.contract import LeashStatus
from trainyard.backends.local import leash, node_processes
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.local.node_processes import Ports
from trainyard.backends.shared import ray_nodes
from trainyard.backends.shared.leash import Leash
from trainyard.backends.shared.logs import HEAD_FILES, TAIL_LINES, LogFile
from trainyard.backends.shared.ray_nodes import Capacity, NodePlan
from trainyard.backends.shared.record import read_cluster, write_cluster
from trainyard.backends.shared.single_host import Machine, ObservedNode, ended
from trainyard.endpoint import MissingPackage
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams import processes, programs
from trainyard.seams.forwarding import LOOPBACK
from trainyard.spec.units import GIB

# Measured without tasks: the processes of a worker hold 0.35 GiB, those of the head 0.6 GiB.
MEMORY_OF_A_NODE = 0.4 * GIB
# A log may have long lines, so each poll reads only this many bytes at its end.
TAIL_BYTES = 64 * 1024
# The number of log lines in the error for a node that ended while it was starting.
LAST_LINES = 6
# The beginnings of two lines that a node's keeper prints (seams/keeper.py).
DIED = "keeper: ended while the node was starting: "
GAVE_UP = "keeper: this machine is too busy for Ray's own time limits"
# A frame: "/path/gcs_server(+0x3609c4) [0x55c3d16d29c4] ray::gcs::GcsServer::GetStorageType()"
_STACK_FRAME = re.compile(r"\[0x[0-9a-f]+\]|\*\*\* StackTrace")

# A script for another Python: it prints the first argument that it cannot import, and exits with
# the code _LACKS.
_LACKS = 3
_MISSING = f"""
import sys
for name in sys.argv[1:]:
    try:
        __import__(name)
    except Exception:
        print(name)
        sys.exit({_LACKS})
"""


class ThisMachine(Machine):
    """This machine: a node is a keeper (seams/keeper.py) and its Ray."""

    host = LOOPBACK

    @property
    def files(self) -> ClusterFiles:
        return ClusterFiles(self.site.state)

    @cached_property
    def plans(self) -> tuple[NodePlan, ...]:
        """Return all plans; a node without a size gets the machine's size."""
        real: tuple[str, ...] = ()
        # nvidia-smi may take seconds.
        if any(node.gpus for node in self.spec.nodes()):
            real = gpu_ids(self.site.environ)
        # Ray's own share of a machine's memory is 70 %.
        capacity = Capacity(os.cpu_count() or 1, psutil.virtual_memory().total * 7 // 10, real)
        may_simulate = self.spec.local.simulated_gpus
        return ray_nodes.node_plans(
            self.spec, capacity, may_simulate=may_simulate, machine="this machine"
        )

    def nodes(self) -> dict[str, ObservedNode]:
        """Return the recorded nodes; a node runs while its keeper does."""
        nodes = {}
        for name, record in node_processes.read(self.files).items():
            runs = processes.alive(record.process)
            started = processes.started_at(record.process)
            nodes[name] = ObservedNode(
                plan=record.made_from,
                identity=record.process,
                runs=runs,
                has_run=True,
                started=started,
                made=started,
                detail="" if runs else "its processes have ended",
            )
        return nodes

    def address(self) -> str | None:
        head = self.nodes().get("head")
        ports = self._ports()
        if head and head.runs and ports:
            return f"http://{LOOPBACK}:{ports.dashboard}"
        return None

    @property
    def gcs(self) -> str | None:
        head = self.nodes().get("head")
        ports = self._ports()
        if head and head.runs and ports:
            return f"{LOOPBACK}:{ports.gcs}"
        return None

    def ray_address(self) -> str:
        """Return the GCS's address: programs here need no Ray Client."""
        if self.gcs is None:
            raise contract.not_up(self.spec.name)
        return self.gcs

    def log_files(self, node: str) -> Iterator[LogFile]:
        """Yield the last lines of nodes' log files, from disk, not from Ray."""
        for name, record in node_processes.read(self.files).items():
            if node not in ("", name):
                continue
            paths = [self.files.node_log(name)]
            paths += [self.files.ray_logs(name) / file for file in HEAD_FILES]
            for path in paths:
                if path.is_file():
                    yield LogFile((record.process, path.name), name, path.name, _tail(path))

    def start(self, missing: Sequence[str]) -> None:
        """Start the missing nodes; a new head gets new ports.

        Raises the errors of `check`.
        """
        check(len(missing), memory=psutil.virtual_memory().available)
        self.files.prepare()
        self.make_token()
        ports = self._ports()
        if ports is None or "head" in missing:
            ports = Ports(*processes.free_ports(2))
            write_cluster(self.site.state, self.site.backend, {"ports": asdict(ports)})

        for plan in self.plans:
            if plan.name in missing:
                node_processes.start(self.files, plan, ports, environ=self.site.environ)

    def lacking(self, packages: Sequence[str]) -> MissingPackage | None:
        """Return the first package that the head's Python lacks, or None."""
        head = node_processes.read(self.files).get("head")
        command = processes.command(head.process) if head else None
        if not command:
            return None
        ended = programs.run([command[0], "-c", _MISSING, *packages], env=self.site.environ)
        if ended.code == _LACKS:
            return MissingPackage(ended.tail[-1], command[0])
        return None

    def remove(self, names: Iterable[str]) -> None:
        node_processes.end(self.files, names)

    @property
    def leash(self) -> Leash:
        def start(status: LeashStatus) -> None:
            leash.start(self.files, status, str(self.address()), environ=self.site.environ)

        return Leash(
            lambda: leash.observe(self.files), self.made, start, lambda: leash.end(self.files)
        )

    def end_reason(self, name: str) -> TrainyardError:
        """Return the error for a node that ended."""
        path, lines = log_tail(self.files, name)
        if lines and lines[-1].startswith(GAVE_UP):
            return NotReadyError(
                f"{name} did not start in several tries: this machine is too busy for Ray's own "
                "time limits",
                where=str(path),
                hint="Repeat the same command when the machine is less busy (`uptime`), or ask for "
                "fewer nodes.",
            )
        return OutsideError(
            ended(name, lines),
            where=str(path),
            hint="Repeat the same command once the cause is gone: the command replaces this node.",
        )

    def _ports(self) -> Ports | None:
        record = read_cluster(self.site.state, self.site.backend)
        return Ports(**record["ports"]) if record else None


def gpu_ids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Ask nvidia-smi for GPUs' indices; CUDA_VISIBLE_DEVICES may hide some."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    ran = programs.run(command, env=environ, seconds=20.0)
    rows = []
    for line in ran.tail:
        if "," in line and ran.code == 0:
            rows.append([cell.strip() for cell in line.split(",")])
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return tuple(row[0] for row in rows)
    visible = [device.strip() for device in environ["CUDA_VISIBLE_DEVICES"].split(",")]
    return tuple(row[0] for row in rows if row[0] in visible or row[1] in visible)


def check(nodes: int, *, memory: int) -> None:
    """Raise PrerequisiteError for a wrong Ray, or too few bytes of memory."""
    try:
        ray = f"ray {version('ray')}"
    except PackageNotFoundError:
        ray = "no ray"

    if ray != f"ray {versions.RAY}":
        raise PrerequisiteError(
            f"the local backend needs ray {versions.RAY}, and {ray} is installed in this Python",
            hint=f"Install it: {versions.installing('local')}",
        )

    needed = MEMORY_OF_A_NODE * nodes
    if memory < needed:
        raise PrerequisiteError(
            f"too little memory: {memory / GIB:.1f} GiB free, "
            f"Ray's own processes need {needed / GIB:.1f} GiB",
            hint="Free memory, or ask for fewer nodes.",
        )


def log_tail(files: ClusterFiles, name: str) -> tuple[Path, list[str]]:
    """Return the path and the last lines of the log that says why a node ended.

    If the keeper gave up, this is the last line of the node's own output.
    Otherwise these logs are tried in order, until one has lines:

    - the log of the Ray daemon that the keeper names; without a name, and if
      Ray had started, the logs of gcs_server and raylet;
    - the node's own output.
    """
    printed = _lines(files.node_log(name))
    if printed and printed[-1].startswith(GAVE_UP):
        return files.node_log(name), printed[-1:]

    for daemon in _daemons(printed):
        for ending in (".err", ".out"):
            path = files.ray_logs(name) / f"{daemon}{ending}"
            lines = _lines(path)
            if lines:
                return path, lines[-LAST_LINES:]

    return files.node_log(name), printed[-LAST_LINES:]


def _daemons(printed: Sequence[str]) -> list[str]:
    """Return the daemon that died, else both; [] if Ray had not started."""
    for line in reversed(printed):
        if line.startswith(DIED):
            return [line.removeprefix(DIED)]
    if any("Ray runtime started" in line for line in printed):
        return ["gcs_server", "raylet"]
    return []


def _lines(path: Path) -> list[str]:
    """Return a log's lines, without C++ stack frames.

    A crash's reason is above the stack.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []

    lines = []
    for line in text.splitlines():
        if line.strip() and not _STACK_FRAME.search(line):
            lines.append(line.rstrip())
    return lines


def _tail(path: Path) -> list[str]:
    """Return the last complete lines of a file; [] if it is gone."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read()
    except OSError:
        return []
    return text[: text.rfind(b"\n") + 1].decode(errors="replace").splitlines()[-TAIL_LINES:]
