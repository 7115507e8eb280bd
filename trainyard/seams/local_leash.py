"""The leash: a process that ends a local cluster that is idle or too old.

It ends the cluster's processes, removes the cluster's files, and ends itself.

Usage: local_leash.py SETTINGS, the JSON that trainyard_runner.leash reads. Its
key `local` has the `marker` in the environment of the cluster's processes, and
the `files` and directories to remove.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

# This file is run by its path, so sys.path begins with its directory, not the package's parent.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from trainyard_runner import leash
from trainyard_runner.wire import tree

from trainyard.seams import processes


def main(settings: leash.Settings) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    leash.hold(settings, lambda: end(settings["local"]))


def end(target: leash.Settings) -> None:
    """End the cluster's other processes, then remove the cluster's files.

    Raises OSError if a process does not end.
    """

    def members() -> frozenset[processes.ProcessId]:
        return processes.members([], marker=target["marker"])

    # A keeper needs 3 s to end its node.
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
