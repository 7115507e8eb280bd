"""The leash of a local cluster: it ends the cluster's processes and itself, and removes its files.

Usage: local_leash.py SETTINGS, as trainyard_runner.leash has them; `local` names the `marker` that
the cluster's processes carry in their environment, and the `files` and directories to remove.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

# Run by its path, this directory comes first on sys.path instead of the package's parent.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from trainyard_runner import leash
from trainyard_runner.wire import tree

from trainyard.seams import processes


def main(settings: leash.Settings) -> None:
    """Wait until the deadline, then end the cluster."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    leash.hold(settings, lambda: end(settings["local"]))


def end(target: leash.Settings) -> None:
    """End every process of the cluster but this one. Raises OSError for those that do not end."""

    def members() -> frozenset[processes.ProcessId]:
        return processes.members([], marker=target["marker"])

    # A keeper needs 3 s for its node.
    left = processes.end(members, grace=5.0, deadline=5.0)
    if left:
        raise OSError(f"processes that do not end: {sorted(process.pid for process in left)}")

    for path in target["files"]:
        if Path(path).is_dir():
            tree.remove(path)
        else:
            Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
