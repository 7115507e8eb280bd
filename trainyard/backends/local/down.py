"""The steps that end every process and remove every file of a local cluster."""

from __future__ import annotations

from trainyard.backends import contract
from trainyard.backends.contract import Tools
from trainyard.backends.local import record, snapshot
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.wording import counted
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Step]:
    """Return the steps that end every process and remove every file of the cluster."""
    if purge:
        raise contract.nothing_to_purge(
            tools.backend, "`cluster.down` removes everything that was made on this machine."
        )
    files = ClusterFiles(tools.state)
    recorded = record.read_nodes(files)
    return [
        Step(
            f"End {counted(len(recorded), 'node')}" if recorded else "End what still runs",
            done=lambda: _nothing_runs(files),
            do=lambda: snapshot.end_cluster(files),
            disruptive=True,
        ),
        Step(
            "Remove the token, the logs and the temporary files",
            done=lambda: _no_files(files),
            do=lambda: _forget(files),
        ),
    ]


def _nothing_runs(files: ClusterFiles) -> Answer:
    left = snapshot.of_cluster(files)
    return no(f"{len(left)} processes run") if left else YES


def _no_files(files: ClusterFiles) -> Answer:
    left = [str(path) for path in (files.state, files.temp) if path.exists()]
    return no(f"still there: {', '.join(left)}") if left else YES


def _forget(files: ClusterFiles) -> None:
    record.remove(files.temp)
    record.remove(files.state)
