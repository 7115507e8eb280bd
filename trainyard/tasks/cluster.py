"""Make, look at and remove clusters."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainyard.tasks import command_hints, lazy
from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.tasks.report import Report

if TYPE_CHECKING:
    from trainyard.lifecycle import Cluster

END_RUNS = "End the runs that go on, if nodes have to go; without it, they are named and nothing is done."
PURGE = "Also the KubeRay operator, its CRDs and the namespace, if Trainyard made them and nobody else needs them."
RECREATE = "Make every node anew, the head too; ends all that runs."
SIZES = "GROUP=N: so many nodes; of a group that grows and shrinks, at least so many. Several may be given."


@task(*CLUSTER, dry=True, help={"recreate": RECREATE, "end_runs": END_RUNS})
def up(call: Call, recreate: bool = False, end_runs: bool = False) -> Report:
    """Make the cluster match its file."""
    if call.dry:
        return _planned_up(call, recreate=recreate)
    command = "cluster.up --recreate" if recreate else "cluster.up"
    return _made(call, call.cluster(), command, recreate=recreate, end_runs=end_runs)


@task(*CLUSTER, dry=True, help={"recreate": "Plan as if cluster.up were called with --recreate."})
def plan(call: Call, recreate: bool = False) -> Report:
    """Say what cluster.up would change; change nothing."""
    return _planned_up(call, recreate=recreate, documents=call.json)


@task(*CLUSTER, dry=True, help={"purge": PURGE, "end_runs": END_RUNS})
def down(call: Call, purge: bool = False, end_runs: bool = False) -> Report:
    """Remove the cluster, and prove that nothing is left."""
    cluster = call.cluster()
    command = "cluster.down --purge" if purge else "cluster.down"
    if call.dry:
        return lazy.cluster_report.planned(cluster, lazy.lifecycle.plan_down(cluster, purge=purge), command=command)
    lazy.cluster_report.begin(cluster)
    check = _before_nodes_end(call, cluster, command, end_runs=end_runs)
    results = lazy.lifecycle.down(cluster, call.progress, purge=purge, before_disruption=check)
    return lazy.cluster_report.removed(cluster, results, purge=purge)


@task(*CLUSTER, dry=True)
def status(call: Call) -> Report:
    """Ask every node how it is, and what is in use."""
    now = lazy.lifecycle.status(call.cluster())
    return lazy.cluster_report.status(now, lazy.usage.ask(now))


@task(*CLUSTER, dry=True, positional=["sizes"], iterable=["sizes"], help={"sizes": SIZES, "end_runs": END_RUNS})
def scale(call: Call, sizes: list[str] | None = None, end_runs: bool = False) -> Report:
    """Give groups another number of nodes than the file says, as cluster.up would: cluster.scale gpu=3."""
    file = call.cluster()
    cluster = lazy.scaling.scaled(file, sizes or [])
    command_hints.override(cluster.tools.overrides)
    if call.dry:
        return lazy.cluster_report.planned(cluster, lazy.lifecycle.plan_up(cluster))
    made = _made(call, cluster, f"cluster.scale {shlex.join(sizes or [])}", end_runs=end_runs)
    return lazy.cluster_report.resized(made, cluster, lazy.scaling.differences(file.spec, cluster.spec))


@task(*CLUSTER, dry=True)
def show(call: Call) -> Report:
    """Print the cluster file as resolved, defaults marked."""
    return lazy.cluster_report.shown(call.cluster())


@task(dry=True, name="list")
def list_(call: Call) -> Report:
    """List the clusters that have a file here, and those that were made from files elsewhere."""
    return lazy.cluster_report.listed(lazy.listing.list_clusters(os.environ, directory=call.here))


@task(*CLUSTER, dry=True, name="open")
def open_(call: Call) -> Report | None:
    """Show where the dashboard is and how to log in; open it when there is a browser."""
    cluster = call.cluster()
    lazy.lifecycle.connect(cluster)
    now = lazy.lifecycle.status(cluster)
    found = lazy.cluster_report.opened(now, browse=not call.dry)
    if now.tunnel is None or call.dry:
        return found
    lazy.cluster_report.hold(found, now.tunnel, json=call.json)
    return None


@task(*CLUSTER, dry=True, help={"follow": "Stay, and print what is added (default)."})
def logs(call: Call, follow: bool = True) -> None:
    """Print what the nodes' own log files say, each line with its node."""
    lazy.cluster_report.print_logs(lazy.lifecycle.logs(call.cluster(), follow=follow), json=call.json)


def _planned_up(call: Call, *, recreate: bool, documents: bool = False) -> Report:
    cluster = call.cluster()
    return lazy.cluster_report.planned(
        cluster,
        lazy.lifecycle.plan_up(cluster, recreate=recreate),
        command="cluster.up --recreate" if recreate else "cluster.up",
        documents=lazy.lifecycle.documents(cluster, recreate=recreate) if documents else (),
    )


def _made(call: Call, cluster: Cluster, command: str, *, end_runs: bool, recreate: bool = False) -> Report:
    lazy.cluster_report.begin(cluster)
    check = _before_nodes_end(call, cluster, command, end_runs=end_runs)
    results = lazy.lifecycle.up(cluster, call.progress, recreate=recreate, before_disruption=check)
    return lazy.cluster_report.made(cluster, results, lazy.lifecycle.connect(cluster))


def _before_nodes_end(call: Call, cluster: Cluster, command: str, *, end_runs: bool) -> Callable[[], None]:
    """Return the check for runs that nodes would end with; `command` is how to repeat it."""

    def check() -> None:
        # Most commands end no nodes, and need none of what fetching outputs takes: it is imported here.
        from trainyard import ending, paths
        from trainyard.tasks.report import note

        change = ending.Change(cluster, command, paths.results_home(os.environ, directory=call.here), end_runs)
        ending.check(change, call.progress, note=lambda text: note(f"note: {text}"))

    return check
