"""This machine, as it holds the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from trainyard.backends.local import diagnosis, node_processes, preflight
from trainyard.backends.local.desired import LOOPBACK, Ports
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.logs import HEAD_FILES, TAIL_LINES, LogFile
from trainyard.backends.machine import Machine, ObservedNode, Plan
from trainyard.backends.ray_nodes import NodePlan
from trainyard.backends.record import read_cluster, write_cluster
from trainyard.errors import TrainyardError
from trainyard.seams import processes

# Some lines of a log are long; what is read again and again must not be all of it.
TAIL_BYTES = 64 * 1024


class ThisMachine(Machine):
    """This machine: a node is a keeper and what it started."""

    @property
    def host(self) -> str:
        return LOOPBACK

    @property
    def files(self) -> ClusterFiles:
        return ClusterFiles(self.tools.state)

    @cached_property
    def plans(self) -> tuple[NodePlan, ...]:
        return preflight.node_plans(self.spec, self.tools.environ)

    def nodes(self) -> dict[str, ObservedNode]:
        """Return the recorded nodes."""
        nodes = {}
        for name, record in node_processes.read(self.files).items():
            runs = processes.alive(record.process)
            nodes[name] = ObservedNode(
                plan=record.made_from,
                identity=record.process,
                runs=runs,
                has_run=True,
                started=processes.started_at(record.process),
                detail="" if runs else "its processes have ended",
            )
        return nodes

    def desired(self) -> dict[str, Plan]:
        return {plan.name: plan.recorded() for plan in self.plans}

    def address(self) -> str | None:
        head, ports = self.nodes().get("head"), self._ports()
        return ports.address if head and head.runs and ports else None

    def log_files(self) -> Iterator[LogFile]:
        """Yield the files of the recorded nodes, which can be read whatever Ray does."""
        for name, record in node_processes.read(self.files).items():
            for path in (self.files.node_log(name), *(self.files.ray_logs(name) / file for file in HEAD_FILES)):
                if path.is_file():
                    yield LogFile((record.process, path.name), name, path.name, _tail(path))

    def start(self, missing: Sequence[str]) -> None:
        """Start every missing node; a new head gets new ports."""
        self.files.prepare()
        ports = self._ports()
        if ports is None or "head" in missing:
            ports = Ports(*processes.free_ports(2))
            record = {"name": self.spec.name, "ports": {"gcs": ports.gcs, "dashboard": ports.dashboard}}
            write_cluster(self.tools.state, self.tools.backend, record)
        for plan in self.plans:
            if plan.name in missing:
                node_processes.start(self.files, plan, ports, environ=self.tools.environ)

    def remove(self, names: Iterable[str]) -> None:
        node_processes.end(self.files, names)

    def end_reason(self, name: str) -> TrainyardError:
        return diagnosis.end_reason(self.files, name)

    def _ports(self) -> Ports | None:
        record = read_cluster(self.tools.state, self.tools.backend)
        return Ports(**record["ports"]) if record else None


def _tail(path: Path) -> list[str]:
    """Return the last whole lines of a file; none of one that was removed meanwhile, with its node."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read()
    except OSError:
        return []
    return text[: text.rfind(b"\n") + 1].decode(errors="replace").splitlines()[-TAIL_LINES:]
