"""What Ray itself says about the nodes of a local cluster."""

from __future__ import annotations

from trainyard.backends.local import records
from trainyard.backends.local.layout import LOOPBACK, Ports
from trainyard.backends.local.records import ClusterFiles, ClusterRecord
from trainyard.backends.ray_nodes import alive
from trainyard.errors import OutsideError
from trainyard.seams import processes
from trainyard.seams.ray_api import UnreachableError

NO_DASHBOARD = "the dashboard has ended"
# As they stand in a command line: whoever starts the dashboard, and the dashboard.
_STARTING = ("ray_launcher.py", "dashboard/dashboard.py")
# `ray start` starts it last.
_RAYLET = "raylet/raylet"


def answering(files: ClusterFiles, record: ClusterRecord | None) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    if record is None:
        return frozenset(), ""
    try:
        return alive(address(record.ports), records.read_token(files), started=_started(files)), ""
    except UnreachableError:
        return frozenset(), "waiting for the dashboard" if _has_dashboard(files) else NO_DASHBOARD
    except OutsideError as error:
        return frozenset(), error.what


def _started(files: ClusterFiles) -> dict[str, float]:
    """Return when the keeper of each node was started."""
    found = {name: processes.started_at(one.process) for name, one in records.read_nodes(files).items()}
    return {name: when for name, when in found.items() if when is not None}


def _has_dashboard(files: ClusterFiles) -> bool:
    """Say whether the dashboard runs or may still be started; of a head that ended something else is to be said."""
    head = records.read_nodes(files).get("head")
    if head is None or not processes.alive(head.process):
        return True
    started = [processes.command_line(one) for one in processes.members([head.process]) - {head.process}]
    has_started = any(_RAYLET in line for line in started)
    return not has_started or any(part in line for line in started for part in _STARTING)


def address(ports: Ports) -> str:
    """Return where the dashboard answers."""
    return f"http://{LOOPBACK}:{ports.dashboard}"
